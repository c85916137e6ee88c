// What is asked for, how much of it, and until when.
#include "transfer/prefetcher.hpp"

#include "testing/eventually.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/outlook.hpp"

#include <atomic>

namespace hippogriff {
namespace {

// A file on a drive, of which nothing is in the page cache before it is asked for.
class AskedFile final : public File {
 public:
  explicit AskedFile(std::uint64_t inode, std::uint64_t size_bytes = 64 * mebibyte) {
    known.device_number = 1;
    known.inode = inode;
    known.size = size_bytes;
  }

  [[nodiscard]] const FileFacts& facts() const override { return known; }

  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] int direct_fd() const override { return -1; }

  std::size_t read(std::span<std::byte>, std::uint64_t) override { return 0; }

  std::optional<std::size_t> read_cached_pieces(std::span<const iovec>,
                                                std::uint64_t offset,
                                                PageCache) override {
    const std::scoped_lock lock(mutex_);
    return landed_.contains({offset, 1}) ? std::optional<std::size_t>(1) : std::nullopt;
  }

  std::size_t write(std::span<const std::byte>, std::uint64_t) override { return 0; }

  std::optional<Residency> residency(Range range) override {
    const std::scoped_lock lock(mutex_);
    return Residency{
        asked_.contains(range) || everything_is_there ? range.size : 0, range.size, true};
  }

  std::uint64_t size_now() override { return known.size; }

  void allocate(Range) override {}

  void truncate(std::uint64_t) override {}

  void sync() override {}

  std::span<std::byte> map(Range, FileAccess) override { return {}; }

  void unmap(std::span<std::byte>) noexcept override {}

  void begin_read_ahead(Range range) noexcept override {
    while (hangs) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::scoped_lock lock(mutex_);
    asked_.insert(range);
    if (lands) {
      landed_.insert(range);
    }
  }

  void land_all() {
    const std::scoped_lock lock(mutex_);
    landed_.insert({0, known.size});
    lands = true;
  }

  std::uint64_t asked_bytes() {
    const std::scoped_lock lock(mutex_);
    return asked_.total_bytes();
  }

  bool was_asked_for(Range range) {
    const std::scoped_lock lock(mutex_);
    return asked_.contains(range);
  }

  std::atomic<bool> hangs = false;
  std::atomic<bool> lands = true;
  std::atomic<bool> everything_is_there = false;
  FileFacts known;

 private:
  std::mutex mutex_;
  RangeSet asked_;
  RangeSet landed_;
};

std::shared_ptr<AskedFile> file(std::uint64_t inode = 7) {
  return std::make_shared<AskedFile>(inode);
}

TEST(Prefetcher, asks_for_all_of_an_extent_in_order) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto one = file();
  EXPECT_EQ(prefetcher.begin(one, {3 * mebibyte, 50 * mebibyte + 5}), 50 * mebibyte + 5);
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return one->asked_bytes() == 50 * mebibyte + 5; }));
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, waits_while_somebody_needs_the_drive) {
  const auto needed = file(1);
  const auto other = file(2);
  std::atomic<bool> is_needed = true;
  std::atomic<int> looks = 0;
  Prefetcher prefetcher(1024 * mebibyte, [&](const File& each) {
    ++looks;
    return is_needed && each.identity().inode == 1;
  });
  EXPECT_EQ(prefetcher.begin(needed, {0, 50 * mebibyte}), 50 * mebibyte);
  EXPECT_EQ(prefetcher.begin(other, {0, 50 * mebibyte}), 50 * mebibyte);
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return other->asked_bytes() == 50 * mebibyte; }));
  const int all_but_needed = looks;
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return looks >= all_but_needed + 3; }));
  EXPECT_EQ(needed->asked_bytes(), 0U);
  is_needed = false;
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return needed->asked_bytes() == 50 * mebibyte; }));
  is_needed = true;
  EXPECT_EQ(prefetcher.begin(needed, {50 * mebibyte, mebibyte}), mebibyte);
  const int before = looks;
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return looks > before; }));
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough)) << "also while it waits";
  EXPECT_EQ(needed->asked_bytes(), 50 * mebibyte);
}

TEST(Prefetcher, what_waits_for_long_is_let_go_of_and_makes_room) {
  auto never = file(1);
  const std::weak_ptr<AskedFile> held = never;
  std::atomic<bool> is_needed = true;
  Prefetcher prefetcher(
      64 * mebibyte,
      [&](const File& /*file*/) { return is_needed.load(); },
      std::chrono::milliseconds(300));
  EXPECT_EQ(prefetcher.begin(never, {0, 64 * mebibyte}), 64 * mebibyte);
  never.reset();
  EXPECT_TRUE(prefetcher.reads());
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return held.expired(); }));
  EXPECT_FALSE(prefetcher.reads());
  const auto other = file(2);
  is_needed = false;
  EXPECT_EQ(prefetcher.begin(other, {0, 64 * mebibyte}), 64 * mebibyte);
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return other->asked_bytes() == 64 * mebibyte; }));
}

TEST(Prefetcher, stops_at_once_while_it_waits_for_what_is_on_its_way) {
  for (int round = 0; round < 20; ++round) {
    Prefetcher prefetcher(1024 * mebibyte);
    const auto one = file();
    one->lands = false;
    EXPECT_EQ(prefetcher.begin(one, {0, 64 * mebibyte}), 64 * mebibyte);
    EXPECT_TRUE(
        hippogriff::testing::eventually([&] { return one->asked_bytes() == 16 * mebibyte; }));
    EXPECT_TRUE(prefetcher.stop(Clock::now() + std::chrono::seconds(1))) << "round " << round;
  }
}

TEST(Prefetcher, asks_for_no_more_than_there_is_room_for_until_that_is_sent) {
  Prefetcher prefetcher(20 * mebibyte);
  const auto one = file(1);
  const auto other = file(2);
  EXPECT_EQ(prefetcher.begin(one, {0, 15 * mebibyte}), 15 * mebibyte);
  EXPECT_EQ(prefetcher.begin(other, {0, 15 * mebibyte}), 5 * mebibyte);
  EXPECT_EQ(prefetcher.begin(one, {15 * mebibyte, 3 * mebibyte}), 0U);
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return other->asked_bytes() == 5 * mebibyte; }));
  prefetcher.sent(*other, {10 * mebibyte, mebibyte});
  prefetcher.sent(*file(3), {0, 64 * mebibyte});
  EXPECT_EQ(prefetcher.begin(one, {15 * mebibyte, 3 * mebibyte}), 0U) << "other bytes were sent";
  prefetcher.sent(*file(1), {4 * mebibyte, 11 * mebibyte});
  EXPECT_EQ(prefetcher.begin(other, {20 * mebibyte, 40 * mebibyte}), 11 * mebibyte);
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return other->asked_bytes() == 16 * mebibyte; }));
  EXPECT_EQ(one->asked_bytes(), 15 * mebibyte);
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, asks_for_nothing_of_what_is_being_sent) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto one = file();
  one->hangs = true;
  EXPECT_EQ(prefetcher.begin(one, {0, 60 * mebibyte}), 60 * mebibyte);
  prefetcher.sent(*one, {0, 60 * mebibyte});
  one->hangs = false;
  const auto other = file(8);
  prefetcher.begin(other, {0, 8 * mebibyte});
  EXPECT_TRUE(
      hippogriff::testing::eventually([&] { return other->asked_bytes() == 8 * mebibyte; }));
  EXPECT_LE(one->asked_bytes(), 4 * mebibyte) << "a step may have begun";
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, goes_on_behind_what_is_being_sent_of_an_extent) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto one = file();
  one->hangs = true;
  prefetcher.begin(one, {0, 60 * mebibyte});
  prefetcher.sent(*one, {0, 20 * mebibyte});
  prefetcher.sent(*one, {50 * mebibyte, 12 * mebibyte});
  prefetcher.sent(*one, {30 * mebibyte, mebibyte});
  one->hangs = false;
  EXPECT_TRUE(hippogriff::testing::eventually(
      [&] { return one->was_asked_for({20 * mebibyte, 30 * mebibyte}); }));
  EXPECT_LE(one->asked_bytes(), 34 * mebibyte) << "a step may have begun";
  prefetcher.sent(*one, {20 * mebibyte, 30 * mebibyte});
  EXPECT_EQ(prefetcher.begin(file(9), {0, 1024 * mebibyte}), 1024 * mebibyte) << "all was sent";
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, asks_for_nothing_that_is_there_already_or_in_memory) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto there = file(1);
  there->everything_is_there = true;
  EXPECT_EQ(prefetcher.begin(there, {0, 60 * mebibyte}), 60 * mebibyte);
  const auto in_memory = file(2);
  in_memory->known.in_memory = true;
  EXPECT_EQ(prefetcher.begin(in_memory, {0, 60 * mebibyte}), 0U);
  const auto last = file(3);
  prefetcher.begin(last, {0, 3 * mebibyte});
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return last->asked_bytes() == 3 * mebibyte; }));
  EXPECT_EQ(there->asked_bytes(), 0U);
  EXPECT_EQ(in_memory->asked_bytes(), 0U);
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, has_no_more_on_its_way_than_16_mebibytes) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto one = file();
  one->lands = false;
  prefetcher.begin(one, {0, 60 * mebibyte});
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return one->asked_bytes() == 16 * mebibyte; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(one->asked_bytes(), 16 * mebibyte);
  EXPECT_TRUE(prefetcher.reads());
  one->land_all();
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return one->asked_bytes() == 60 * mebibyte; }));
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return !prefetcher.reads(); }));
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, waits_for_no_landing_for_ever) {
  Prefetcher prefetcher(1024 * mebibyte);
  const auto one = file();
  one->lands = false;  // As on a file system that does not tell.
  prefetcher.begin(one, {0, 60 * mebibyte});
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return one->asked_bytes() == 60 * mebibyte; }));
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, keeps_few_files_open_that_wait) {
  Prefetcher prefetcher(1024 * mebibyte);
  std::vector<std::shared_ptr<AskedFile>> files;
  for (std::uint64_t inode = 0; inode < 100; ++inode) {
    files.push_back(file(inode));
    files.back()->hangs = true;
    prefetcher.begin(files.back(), {0, mebibyte});
  }
  const auto open =
      std::ranges::count_if(files, [](const auto& each) { return each.use_count() > 1; });
  EXPECT_GE(open, 32);
  EXPECT_LE(open, 33) << "one is being asked for";
  for (const auto& each : files) {
    each->hangs = false;
  }
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return !prefetcher.reads(); }));
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, counts_what_is_asked_for_or_sent_twice_once) {
  Prefetcher prefetcher(100 * mebibyte);
  const auto one = std::make_shared<AskedFile>(1, 200 * mebibyte);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(prefetcher.begin(one, {0, 60 * mebibyte}), 60 * mebibyte);
    EXPECT_EQ(prefetcher.begin(one, {30 * mebibyte, 60 * mebibyte}), 60 * mebibyte);
  }
  EXPECT_EQ(prefetcher.begin(file(2), {0, 60 * mebibyte}), 10 * mebibyte) << "90 count";
  for (int turn = 0; turn < 3; ++turn) {
    prefetcher.sent(*one, {0, 30 * mebibyte});
  }
  EXPECT_EQ(prefetcher.begin(file(3), {0, 60 * mebibyte}), 30 * mebibyte);
  EXPECT_TRUE(prefetcher.stop(Clock::now() + long_enough));
}

TEST(Prefetcher, reads_nothing_without_room_and_after_its_end) {
  Prefetcher none(0);
  const auto one = file();
  EXPECT_EQ(none.begin(one, {0, 50 * mebibyte}), 0U);
  EXPECT_EQ(none.begin(one, {0, 1000}), 0U);
  Prefetcher ended(1024 * mebibyte);
  EXPECT_TRUE(ended.stop(Clock::now() + long_enough));
  EXPECT_EQ(ended.begin(one, {0, 50 * mebibyte}), 0U);
  EXPECT_EQ(one->asked_bytes(), 0U);
}

TEST(Prefetcher, is_not_held_up_by_a_drive_that_hangs) {
  const auto one = file();
  {
    Prefetcher prefetcher(1024 * mebibyte);
    one->hangs = true;
    prefetcher.begin(one, {0, 60 * mebibyte});
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(prefetcher.stop(Clock::now() + std::chrono::milliseconds(20)));
    EXPECT_FALSE(prefetcher.reads());
  }
  one->hangs = false;
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return one.use_count() == 1; }))
      << "its thread ends";
  EXPECT_LE(one->asked_bytes(), 4 * mebibyte);
}

// Of a real file, through a runtime: the send finds what was read, and all bytes are right.
TEST(Prefetcher, brings_a_file_into_the_page_cache_for_the_send_to_come) {
  const TemporaryFolder folder;
  const std::string path = folder.file("data");
  const std::vector<std::byte> content = random_bytes(24 * mebibyte, 6);
  write_whole(path, content);
  drop_cache(path, 0, content.size());
  Runtime runtime(test_settings(), make_system_storage(), {linked_device()});
  const auto opened = make_system_storage()->open(path, FileAccess::read);
  if (opened->facts().in_memory || cached_fraction(*opened, {0, content.size()}) > 0.5) {
    GTEST_SKIP() << "this file system keeps its files in memory";
  }
  Submission submission;
  submission.path = path;
  runtime.prefetch(submission);
  EXPECT_TRUE(hippogriff::testing::eventually(
      [&] { return cached_fraction(*opened, {0, content.size()}) == 1; }));
  submission.device = "linked";
  const auto transfer = runtime.submit(submission);
  ASSERT_TRUE(transfer->wait(long_enough));
  ASSERT_FALSE(transfer->failed());
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
  EXPECT_EQ(transfer->cold_bytes(), 0U);
  submission.offset = content.size() + 1;
  EXPECT_THROW(runtime.prefetch(submission), Error);
  submission.path = folder.file("nothing");
  EXPECT_THROW(runtime.prefetch(submission), Error);
  EXPECT_TRUE(runtime.free(transfer->address()));
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

}  // namespace
}  // namespace hippogriff
