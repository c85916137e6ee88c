// What is read before a send's device is there, and the file that it makes: always the file's own
// bytes, whatever happens to the drive.
#include "transfer/first_read.hpp"

#include "testing/eventually.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/outlook.hpp"
#include "transfer/read_ahead_file.hpp"

#include <atomic>
#include <random>

namespace hippogriff {
namespace {

constexpr std::uint64_t size_bytes = 9 * mebibyte + 777;
constexpr std::uint64_t all = UINT64_MAX;

using hippogriff::testing::eventually;

std::uint32_t four(std::uint64_t /*read_bytes*/) {
  return 4;
}

class FirstReadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_whole(path_, content_);
    drop_cache(path_, 0, size_bytes);
    file_ = storage_->open(path_, FileAccess::read);
    if (!file_->facts().direct || cached_fraction(*file_, {0, size_bytes}) > 0) {
      GTEST_SKIP() << "no O_DIRECT, or nothing leaves the page cache here";
    }
  }

  // Reads until so much is there, or for a moment where that is nothing.
  std::shared_ptr<ReadAheadFile> read(Range extent, std::uint64_t until_bytes) {
    const auto first = FirstRead::begin(storage_, file_, extent, all, four);
    if (first == nullptr) {
      return nullptr;
    }
    if (until_bytes > 0) {
      EXPECT_TRUE(eventually([&] { return first->read_bytes() >= until_bytes; }));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    }
    return first->end();
  }

  void expect_same(File& file, Range range) {
    std::vector<std::byte> bytes(range.size);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t got = file.read(std::span(bytes).subspan(at), range.offset + at);
      ASSERT_GT(got, 0U);
      at += got;
    }
    EXPECT_TRUE(same_bytes(bytes, std::span(content_).subspan(range.offset, range.size)));
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(size_bytes, 3);
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  const std::shared_ptr<Storage> storage_ = make_faulty_storage(make_system_storage(), plan_);
  std::shared_ptr<File> file_;
};

TEST_F(FirstReadTest, reads_an_extent_from_its_beginning_on) {
  const Range extent{3 * mebibyte + 5, size_bytes - 3 * mebibyte - 5};
  const auto ahead = read(extent, extent.size);
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(ahead->read_bytes(), extent.size);
  EXPECT_EQ(cached_fraction(*file_, extent), 0) << "past the page cache";
  EXPECT_EQ(cached_fraction(*ahead, extent), 1);
  expect_same(*ahead, {0, size_bytes});
}

TEST_F(FirstReadTest, reads_no_more_than_there_is_room_for) {
  const std::uint64_t room = 2 * mebibyte + 100;
  const auto first = FirstRead::begin(storage_, file_, {0, size_bytes}, room, four);
  ASSERT_NE(first, nullptr);
  EXPECT_TRUE(eventually([&] { return first->read_bytes() == 2 * mebibyte; }));
  const auto ahead = first->end();
  ASSERT_NE(ahead, nullptr);
  EXPECT_EQ(ahead->read_bytes(), 2 * mebibyte) << "whole steps of the file";
  expect_same(*ahead, {0, size_bytes});
  EXPECT_EQ(FirstRead::begin(storage_, file_, {0, size_bytes}, 1000, four), nullptr);
}

TEST_F(FirstReadTest, stands_back_while_others_need_the_drive) {
  std::atomic<bool> needed{true};
  const auto first = FirstRead::begin(
      storage_, file_, {0, size_bytes}, all, [&](std::uint64_t) { return needed ? 0U : 2U; });
  ASSERT_NE(first, nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(plan_->seen(FaultPoint::queued_read), 0U);
  needed = false;
  EXPECT_TRUE(eventually([&] { return plan_->seen(FaultPoint::queued_read) > 3; }));
  const auto ahead = first->end();
  ASSERT_NE(ahead, nullptr);
  expect_same(*ahead, {0, size_bytes});
}

TEST_F(FirstReadTest, leaves_alone_what_is_in_the_page_cache) {
  std::vector<std::byte> bytes(mebibyte);
  ASSERT_EQ(file_->read(bytes, 2 * mebibyte), bytes.size());
  const auto ahead = read({0, size_bytes}, 2 * mebibyte - FirstRead::step_bytes);
  ASSERT_NE(ahead, nullptr);
  EXPECT_LE(ahead->read_bytes(), 2 * mebibyte) << "the kernel may have read on before";
  EXPECT_EQ(read({2 * mebibyte, mebibyte}, 0), nullptr);
}

TEST_F(FirstReadTest, keeps_what_came_before_a_failure) {
  plan_->add({.point = FaultPoint::queued_read, .after = 5, .times = 1});
  const auto ahead = read({0, size_bytes}, 0);
  ASSERT_NE(ahead, nullptr);
  EXPECT_LE(ahead->read_bytes(), 5 * FirstRead::step_bytes);
  expect_same(*ahead, {0, size_bytes});
}

TEST_F(FirstReadTest, believes_no_short_read_and_no_refusal) {
  plan_->add({.point = FaultPoint::queued_read, .kind = FaultKind::shorten, .bytes = 8192});
  EXPECT_EQ(read({0, size_bytes}, 0), nullptr) << "the first step is not all there";
  plan_->add({.point = FaultPoint::submit, .times = 1000});
  EXPECT_EQ(read({0, size_bytes}, 0), nullptr);
  plan_->clear();
  plan_->add({.point = FaultPoint::create_queue});
  EXPECT_EQ(read({0, size_bytes}, 0), nullptr);
}

TEST_F(FirstReadTest, does_not_wait_for_a_drive_that_hangs) {
  plan_->add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .after = 3, .times = 1000});
  const auto begin = std::chrono::steady_clock::now();
  auto ahead = read({0, size_bytes}, 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  if (ahead != nullptr) {
    EXPECT_LE(ahead->read_bytes(), 3 * FirstRead::step_bytes);
    expect_same(*ahead, {0, size_bytes});
  }
  ahead = nullptr;
  EXPECT_GT(file_.use_count(), 1) << "its thread still waits";
  plan_->release();
  EXPECT_TRUE(eventually([&] { return file_.use_count() == 1; })) << "its thread ends";
}

TEST_F(FirstReadTest, random_faults_change_no_byte) {
  int ahead_count = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    plan_->randomize(
        {.seed = seed, .error = 0.05, .try_again = 0.05, .shorten = 0.1, .delay = 0.2});
    std::mt19937_64 random(seed);
    const std::uint64_t begin = random() % (4 * mebibyte);
    const std::uint64_t size = FirstRead::step_bytes + random() % (4 * mebibyte);
    const auto ahead = read({begin, size}, 0);
    plan_->clear();
    if (ahead != nullptr) {
      SCOPED_TRACE(seed);
      ++ahead_count;
      expect_same(*ahead, {begin, size});
    }
  }
  EXPECT_GT(ahead_count, 0);
}

// Against the file itself: reads anywhere, in one piece or several, and what is said to be there.
TEST_F(FirstReadTest, a_file_read_ahead_is_the_file) {
  const Range range{mebibyte + 100, 3 * mebibyte};
  const std::shared_ptr<const std::byte> memory(std::shared_ptr<const void>(),
                                                content_.data() + range.offset);
  ReadAheadFile ahead(file_, range, memory);
  std::mt19937_64 random(1);
  for (int turn = 0; turn < 500; ++turn) {
    const std::uint64_t offset = random() % size_bytes;
    const std::uint64_t size = 1 + random() % std::min(mebibyte, size_bytes - offset);
    expect_same(ahead, {offset, size});
    std::vector<std::byte> bytes(size);
    const std::uint64_t cut = random() % size;
    const std::array<iovec, 2> pieces = {iovec{bytes.data(), cut},
                                         iovec{bytes.data() + cut, size - cut}};
    const auto got = ahead.read_cached_pieces(pieces, offset, File::PageCache::unknown);
    const bool held = offset >= range.offset && offset < range.end();
    if (held) {
      ASSERT_EQ(got, std::min(size, range.end() - offset));
    }
    EXPECT_TRUE(same_bytes(std::span(bytes).first(got.value_or(0)),
                           std::span(content_).subspan(offset, got.value_or(0))));
    const auto residency = ahead.residency({offset, size});
    ASSERT_TRUE(residency);
    const std::uint64_t end = std::clamp(offset + size, range.offset, range.end());
    EXPECT_GE(residency->resident_bytes, end - std::clamp(offset, range.offset, end));
    EXPECT_LE(residency->resident_bytes, residency->total_bytes);
  }
  ahead.forget();
  expect_same(ahead, {0, size_bytes});
}

}  // namespace
}  // namespace hippogriff
