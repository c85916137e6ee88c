// In which order a piece of the page cache is read into host memory.
#include "base/page_size.hpp"
#include "checksum/landing_checksums.hpp"
#include "checksum/xxh3_host.hpp"
#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/transfer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <memory>

namespace hippogriff {
namespace {

constexpr std::uint64_t laned_bytes = std::uint64_t{9} << 20;

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

  std::shared_ptr<LandingChecksums> checksums_of(DeviceAddress address) {
    return std::make_shared<LandingChecksums>(
        std::vector<LandingPart>{{0, {address, laned_bytes}}}, block_bytes_, found_);
  }

  std::shared_ptr<Transfer> send(std::byte* to, bool hashed) {
    const DeviceAddress address{reinterpret_cast<std::uintptr_t>(to)};
    Submission submission;
    submission.path = path_;
    submission.flags = HIPPOGRIFF_HOST_MEMORY;
    submission.route = Route::direct;
    submission.destinations = {{{0, laned_bytes}, address}};
    if (hashed) {
      found_.assign((laned_bytes + block_bytes_ - 1) / block_bytes_, 0);
      submission.checksums = checksums_of(address);
    }
    auto transfer = runtime_.submit(submission);
    EXPECT_TRUE(transfer->wait(long_enough));
    return transfer;
  }

  // Where in the file a read was, after some others.
  std::uint64_t read_after(std::uint64_t others, std::byte* to, bool hashed) {
    plan_->add({.point = FaultPoint::read, .after = others});
    const auto transfer = send(to, hashed);
    EXPECT_TRUE(transfer->failed());
    plan_->clear();
    return transfer->failure().offset;
  }

  // Where nothing says what is in the page cache.
  [[nodiscard]] bool reads_in_order() const {
    const auto file = make_system_storage()->open(path_, FileAccess::read);
    return !file->facts().direct && !file->facts().in_memory;
  }

  std::uint64_t first_read(std::uint64_t offset_in_page, bool hashed) {
    return read_after(0, memory_at(offset_in_page), hashed);
  }

  // The same, of memory that nobody has touched, so many bytes behind the beginning of a page.
  std::uint64_t read_into_new(std::uint64_t offset_in_page, std::uint64_t others, bool hashed) {
    const std::size_t size = laned_bytes + 2 * huge_page_bytes;
    void* const pages =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(pages, MAP_FAILED);
    const std::uintptr_t begin = align_up(reinterpret_cast<std::uintptr_t>(pages), huge_page_bytes);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address within the pages
    auto* const to = reinterpret_cast<std::byte*>(begin + offset_in_page);
    const std::uint64_t offset = read_after(others, to, hashed);
    EXPECT_EQ(::munmap(pages, size), 0);
    return offset;
  }

  void expect_content(std::uint64_t offset_in_page, bool hashed) {
    std::byte* const to = memory_at(offset_in_page);
    std::memset(to, 0, laned_bytes);
    EXPECT_FALSE(send(to, hashed)->failed());
    EXPECT_EQ(std::memcmp(to, content_.data(), laned_bytes), 0);
    for (std::size_t block = 0; hashed && block < found_.size(); ++block) {
      const std::uint64_t begin = block * block_bytes_;
      ASSERT_EQ(found_[block],
                xxh3_of(content_.data() + begin, std::min(block_bytes_, laned_bytes - begin)));
    }
  }

  // Of a send into new memory that begins so many bytes behind the beginning of a page.
  void expect_pieces(std::uint64_t offset_in_page, bool hashed) {
    TransferRequest request;
    request.extent = {0, laned_bytes};
    request.address = {4 * huge_page_bytes + offset_in_page};
    request.new_memory = true;
    found_.assign((laned_bytes + block_bytes_ - 1) / block_bytes_, 0);
    request.checksums = hashed ? checksums_of(request.address) : nullptr;
    Transfer transfer(request, {}, nullptr, Warmth::warm);
    std::uint64_t begin = 0;
    while (const auto piece = transfer.work.claim_warm(4 * huge_page_bytes)) {
      ASSERT_EQ(piece->offset, begin);
      ASSERT_FALSE(piece->empty());
      ASSERT_LE(piece->size, transfer.piece_bytes_max);
      begin = piece->end();
    }
    EXPECT_EQ(begin, laned_bytes);
  }

  std::uint64_t block_bytes_ = 100'000;
  TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(laned_bytes, 4);
  const std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::unique_ptr<std::byte, decltype(&std::free)> memory_{
      static_cast<std::byte*>(std::aligned_alloc(
          huge_page_bytes, laned_bytes / huge_page_bytes * huge_page_bytes + 2 * huge_page_bytes)),
      &std::free};
  std::vector<std::uint64_t> found_;
  Runtime runtime_{
      one_channel(), make_faulty_storage(make_system_storage(), plan_), {plain_device()}};
};

TEST_F(DirectLaneTest, the_huge_page_that_begins_in_a_piece_comes_first) {
  std::memset(memory_at(0), 1, laned_bytes + huge_page_bytes);
  if (reads_in_order()) {
    EXPECT_EQ(first_read(huge_page_bytes - 1000, false), 0U);
    GTEST_SKIP() << "the file system has no O_DIRECT";
  }
  EXPECT_EQ(first_read(0, false), 0U);
  EXPECT_EQ(first_read(huge_page_bytes - 1000, false), 1000U);
  EXPECT_EQ(first_read(huge_page_bytes - 300'000, false), 300'000U);
  // What is hashed is cut where blocks begin.
  EXPECT_EQ(first_read(huge_page_bytes - 1000, true), block_bytes_);
  EXPECT_EQ(first_read(huge_page_bytes - block_bytes_, true), block_bytes_);
}

// By one thread each: two would both clear it.
TEST_F(DirectLaneTest, huge_pages_of_new_memory_are_brought_as_wholes) {
  constexpr std::uint64_t page = huge_page_bytes;
  EXPECT_EQ(read_into_new(0, 1, false), page);
  EXPECT_EQ(read_into_new(0, 2, false), 2 * page);
  EXPECT_EQ(read_into_new(300'000, 0, false), 0U);
  EXPECT_EQ(read_into_new(300'000, 1, false), page - 300'000);
  EXPECT_EQ(read_into_new(300'000, 2, false), 2 * page - 300'000);
  if (reads_in_order()) {
    GTEST_SKIP() << "the file system has no O_DIRECT";
  }
  // What is hashed comes two blocks at a time, up to the last block that ends before a page does.
  // Then the next piece, and of that the block across the pages last.
  block_bytes_ = 128 << 10;
  EXPECT_EQ(read_into_new(300'000, 6, true), 12 * block_bytes_);
  EXPECT_EQ(read_into_new(300'000, 7, true), 14 * block_bytes_);
  EXPECT_EQ(read_into_new(300'000, 14, true), 28 * block_bytes_);
  EXPECT_EQ(read_into_new(300'000, 15, true), 13 * block_bytes_);
  EXPECT_EQ(read_into_new(300'000, 16, true), 30 * block_bytes_);
}

// The most that HIPPOGRIFF_PIECE may say.
TEST_F(DirectLaneTest, no_piece_is_larger_than_a_huge_page) {
  for (const std::uint64_t offset : {0U, 16U, 300'000U, 2'000'000U}) {
    SCOPED_TRACE(offset);
    expect_pieces(offset, false);
    for (const std::uint64_t block : {4096U, 100'000U, 256U << 10U, 512U << 10U, 3U << 20U}) {
      block_bytes_ = block;
      expect_pieces(offset, true);
    }
  }
}

TEST_F(DirectLaneTest, all_of_a_piece_is_read_wherever_it_begins) {
  for (const std::uint64_t offset : {std::uint64_t{0},
                                     std::uint64_t{1},
                                     std::uint64_t{4096},
                                     huge_page_bytes / 2,
                                     huge_page_bytes - 1,
                                     huge_page_bytes - block_bytes_}) {
    SCOPED_TRACE(offset);
    expect_content(offset, false);
    expect_content(offset, true);
  }
}

}  // namespace
}  // namespace hippogriff
