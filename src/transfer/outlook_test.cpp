// What the router is told of a page cache with holes, and what the lanes then do.
#include "transfer/outlook.hpp"

#include "testing/runtime_fixture.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace hippogriff {
namespace {

constexpr std::uint64_t page_bytes = 4096;

// A file of which a function says what pages are in the page cache.
class MadeFile final : public File {
 public:
  MadeFile(std::uint64_t size_bytes, std::function<bool(std::uint64_t page)> present)
      : size_(size_bytes), present_(std::move(present)) {}

  [[nodiscard]] const FileFacts& facts() const override { return facts_; }

  [[nodiscard]] int fd() const override { return -1; }

  [[nodiscard]] int direct_fd() const override { return -1; }

  std::size_t read(std::span<std::byte>, std::uint64_t) override { return 0; }

  std::optional<std::size_t> read_cached_pieces(std::span<const iovec>,
                                                std::uint64_t,
                                                PageCache) override {
    return std::nullopt;
  }

  std::size_t write(std::span<const std::byte>, std::uint64_t) override { return 0; }

  std::optional<Residency> residency(Range range) override {
    std::uint64_t there = 0;
    for (std::uint64_t at = align_down(range.offset, page_bytes); at < range.end();) {
      const std::uint64_t begin = std::max(at, range.offset);
      at += page_bytes;
      there += present_(begin / page_bytes) ? std::min(at, range.end()) - begin : 0;
    }
    return Residency{there, range.size, true};
  }

  std::uint64_t size_now() override { return size_; }

  void allocate(Range) override {}

  void truncate(std::uint64_t) override {}

  void sync() override {}

  std::span<std::byte> map(Range, FileAccess) override { return {}; }

  void unmap(std::span<std::byte>) noexcept override {}

 private:
  FileFacts facts_;
  std::uint64_t size_;
  std::function<bool(std::uint64_t)> present_;
};

double warm_share(const std::vector<WarmRange>& runs) {
  double warm = 0;
  double all = 0;
  for (const WarmRange& run : runs) {
    warm += run.warmth == Warmth::warm ? static_cast<double>(run.range.size) : 0;
    all += static_cast<double>(run.range.size);
  }
  return warm / all;
}

// Every so many pages one run of missing ones.
MadeFile holey(std::uint64_t every, std::uint64_t missing) {
  return {64 * mebibyte, [=](std::uint64_t page) { return page % every >= missing; }};
}

TEST(Outlook, single_missing_pages_cost_their_grains_and_no_more) {
  MadeFile file = holey(100, 1);
  const double share = warm_share(make_classifier(file)({0, 64 * mebibyte}));
  EXPECT_NEAR(share, 1 - 16.0 / 100, 0.01);
}

TEST(Outlook, drive_reads_on_over_short_gaps) {
  EXPECT_EQ(warm_share(make_classifier(*std::make_unique<MadeFile>(holey(32, 1)))({0, mebibyte})),
            1.0 / 16);  // behind the last cold grain
  const auto runs = make_classifier(*std::make_unique<MadeFile>(holey(64, 1)))({0, mebibyte});
  ASSERT_EQ(runs.size(), 8U);
  EXPECT_EQ(runs[0].range, (Range{0, warmth_grain_bytes}));
  EXPECT_EQ(runs[1].warmth, Warmth::warm);
}

TEST(Outlook, fraction_is_what_the_lanes_will_find_in_the_page_cache) {
  for (const auto& [every, missing] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {100, 1}, {1000, 1}, {32, 1}, {16, 1}, {64, 32}, {24, 8}, {512, 256}}) {
    SCOPED_TRACE(std::to_string(missing) + " of " + std::to_string(every));
    MadeFile file = holey(every, missing);
    for (const Range extent : {Range{0, 64 * mebibyte}, Range{12345, 3 * mebibyte}}) {
      const double share = warm_share(make_classifier(file)(extent));
      const double tolerance = extent.size > 4 * mebibyte ? 0.12 : 1e-9;
      EXPECT_NEAR(cached_fraction(file, extent), share, tolerance);
    }
  }
}

TEST(Outlook, runs_cover_their_block_and_are_warm_only_where_all_pages_are) {
  for (const Range block : {Range{0, mebibyte}, Range{4097, 700'001}, Range{65'000, 1000}}) {
    MadeFile file = holey(37, 1);
    std::uint64_t at = block.offset;
    for (const WarmRange& run : make_classifier(file)(block)) {
      EXPECT_EQ(run.range.offset, at);
      at = run.range.end();
      const auto residency = file.residency(run.range);
      if (run.warmth == Warmth::warm) {
        EXPECT_EQ(residency->resident_bytes, residency->total_bytes);
      } else {
        EXPECT_LT(residency->resident_bytes, residency->total_bytes);
      }
    }
    EXPECT_EQ(at, block.end());
  }
}

TEST(Outlook, what_a_read_left_goes_back_as_the_page_cache_has_it) {
  MadeFile file(mebibyte, [](std::uint64_t page) { return page != 20 && page != 100; });
  WorkMap work({0, mebibyte}, nullptr, Warmth::warm);
  ASSERT_EQ(work.claim_warm(mebibyte), (Range{0, mebibyte}));
  give_back_unread(work, file, {20 * page_bytes, mebibyte - 20 * page_bytes});
  EXPECT_EQ(work.unclaimed_bytes(), mebibyte - 20 * page_bytes);
  // The missing pages' grains: 16 pages each, the first from the missing page on.
  EXPECT_EQ(work.claim_cold(mebibyte), (Range{20 * page_bytes, 12 * page_bytes}));
  EXPECT_EQ(work.claim_cold(mebibyte), (Range{96 * page_bytes, 16 * page_bytes}));
  EXPECT_EQ(work.claim_cold(mebibyte), std::nullopt);
  EXPECT_EQ(work.claim_warm(mebibyte), (Range{32 * page_bytes, 64 * page_bytes}));
  EXPECT_EQ(work.claim_warm(mebibyte), (Range{112 * page_bytes, 144 * page_bytes}));
  EXPECT_EQ(work.unclaimed_bytes(), 0U);
}

TEST(Outlook, a_page_that_the_cache_does_have_by_now_is_still_given_to_the_drive) {
  MadeFile file(mebibyte, [](std::uint64_t) { return true; });
  WorkMap work({0, mebibyte}, nullptr, Warmth::warm);
  ASSERT_TRUE(work.claim_warm(mebibyte));
  give_back_unread(work, file, {mebibyte - page_bytes, page_bytes});
  EXPECT_EQ(work.claim_cold(mebibyte), (Range{mebibyte - page_bytes, page_bytes}));
  EXPECT_EQ(work.unclaimed_bytes(), 0U);
}

// Brings all pages but every n-th into the page cache. Dropping them would not do where the kernel
// keeps them in larger pieces.
void read_all_but_every(const std::string& path, std::uint64_t every) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM), 0);
  std::vector<std::byte> pages((every - 1) * page_bytes);
  off_t at = page_bytes;
  while (pread(fd, pages.data(), pages.size(), at) == static_cast<ssize_t>(pages.size())) {
    at += static_cast<off_t>(every * page_bytes);
  }
  close(fd);
}

// As it comes in life: pages of a file that the kernel took away, one here and one there.
TEST(Outlook, pages_missing_everywhere_leave_the_rest_to_the_page_cache) {
  const TemporaryFolder folder;
  const std::string path = folder.file("holes");
  const auto content = random_bytes(32 * mebibyte, 7);
  write_whole(path, content);
  drop_cache(path, 0, content.size());
  read_all_but_every(path, 400);
  Runtime runtime(test_settings(), make_system_storage(), {linked_device()});
  const auto file = runtime.storage().open(path, FileAccess::read);
  const auto block = file->residency({0, 4 * mebibyte});
  const bool holes = block && block->exact && block->resident_bytes < block->total_bytes &&
                     block->resident_bytes > 9 * block->total_bytes / 10;
  if (!file->facts().direct || file->facts().in_memory || !holes) {
    GTEST_SKIP() << "single pages cannot be left out, or not be read past the page cache, here";
  }
  Submission submission;
  submission.path = path;
  submission.route = Route::pipelined;
  const auto transfer = runtime.submit(submission);
  ASSERT_TRUE(transfer->wait(std::chrono::milliseconds(60'000)));
  ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
  EXPECT_LT(transfer->tally(Lane::direct_io).bytes, content.size() / 4) << report_json(*transfer);
  EXPECT_TRUE(runtime.free(transfer->address()));
  EXPECT_TRUE(runtime.shutdown(std::chrono::milliseconds(10'000)));
}

}  // namespace
}  // namespace hippogriff
