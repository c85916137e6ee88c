// In which order a piece of the page cache is read into host memory.
#include "base/page_size.hpp"
#include "checksum/landing_checksums.hpp"
#include "checksum/xxh3_host.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/transfer.hpp"

#include <cstdlib>
#include <memory>

namespace hippogriff {
namespace {

constexpr std::uint64_t file_bytes = std::uint64_t{9} << 20;
constexpr std::uint64_t block_bytes = 100'000;
constexpr std::chrono::seconds long_enough{20};

class DirectLaneTest : public ::testing::Test {
 protected:
  DirectLaneTest() { write_whole(path_, content_); }

  static Settings one_channel() {
    Settings settings = test_settings();
    settings.channels_max = 1;
    return settings;
  }

  void TearDown() override { EXPECT_TRUE(runtime_.shutdown(long_enough)); }

  // So many bytes behind the beginning of a huge page.
  [[nodiscard]] std::byte* memory_at(std::uint64_t offset) const { return memory_.get() + offset; }

  std::shared_ptr<Transfer> send(std::byte* to, bool hashed) {
    const DeviceAddress address{reinterpret_cast<std::uintptr_t>(to)};
    Submission submission;
    submission.path = path_;
    submission.flags = HIPPOGRIFF_HOST_MEMORY;
    submission.route = Route::direct;
    submission.destinations = {{{0, file_bytes}, address}};
    if (hashed) {
      found_.assign((file_bytes + block_bytes - 1) / block_bytes, 0);
      submission.checksums = std::make_shared<LandingChecksums>(
          std::vector<LandingPart>{{0, {address, file_bytes}}}, block_bytes, found_);
    }
    auto transfer = runtime_.submit(submission);
    EXPECT_TRUE(transfer->wait(long_enough));
    return transfer;
  }

  // Where in the file the first read was.
  std::uint64_t first_read(std::uint64_t offset_in_page, bool hashed) {
    plan_->add({.point = FaultPoint::read});
    const auto transfer = send(memory_at(offset_in_page), hashed);
    EXPECT_TRUE(transfer->failed());
    plan_->clear();
    return transfer->failure().offset;
  }

  void expect_content(std::uint64_t offset_in_page, bool hashed) {
    std::byte* const to = memory_at(offset_in_page);
    std::memset(to, 0, file_bytes);
    EXPECT_FALSE(send(to, hashed)->failed());
    EXPECT_EQ(std::memcmp(to, content_.data(), file_bytes), 0);
    for (std::size_t block = 0; hashed && block < found_.size(); ++block) {
      const std::uint64_t begin = block * block_bytes;
      ASSERT_EQ(found_[block],
                xxh3_of(content_.data() + begin, std::min(block_bytes, file_bytes - begin)));
    }
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(file_bytes, 4);
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::unique_ptr<std::byte, decltype(&std::free)> memory_{
      static_cast<std::byte*>(std::aligned_alloc(
          huge_page_bytes, file_bytes / huge_page_bytes * huge_page_bytes + 2 * huge_page_bytes)),
      &std::free};
  std::vector<std::uint64_t> found_;
  Runtime runtime_{
      one_channel(), make_faulty_storage(make_system_storage(), plan_), {plain_device()}};
};

TEST_F(DirectLaneTest, the_huge_page_that_begins_in_a_piece_comes_first) {
  const auto file = make_system_storage()->open(path_, FileAccess::read);
  if (!file->facts().direct && !file->facts().in_memory) {
    EXPECT_EQ(first_read(huge_page_bytes - 1000, false), 0U) << "in order";
    GTEST_SKIP() << "the file system has no O_DIRECT";
  }
  EXPECT_EQ(first_read(0, false), 0U);
  EXPECT_EQ(first_read(huge_page_bytes - 1000, false), 1000U);
  EXPECT_EQ(first_read(huge_page_bytes - 300'000, false), 300'000U);
  // What is hashed is cut where blocks begin.
  EXPECT_EQ(first_read(huge_page_bytes - 1000, true), block_bytes);
  EXPECT_EQ(first_read(huge_page_bytes - block_bytes, true), block_bytes);
}

TEST_F(DirectLaneTest, all_of_a_piece_is_read_wherever_it_begins) {
  for (const std::uint64_t offset : {std::uint64_t{0},
                                     std::uint64_t{1},
                                     std::uint64_t{4096},
                                     huge_page_bytes / 2,
                                     huge_page_bytes - 1,
                                     huge_page_bytes - block_bytes}) {
    SCOPED_TRACE(offset);
    expect_content(offset, false);
    expect_content(offset, true);
  }
}

}  // namespace
}  // namespace hippogriff
