// Residency and cached reads of files whose place in the page cache the test decides.
#include "storage/page_cache.hpp"

#include "storage/storage.hpp"
#include "testing/bytes.hpp"
#include "testing/eventually.hpp"
#include "testing/storage_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace hippogriff {
namespace {

class PageCache : public ::testing::Test {
 protected:
  void SetUp() override {
    target = make_system_storage(QueueKind::threads)->create(home.file("f"));
    if (target->facts().in_memory) {
      GTEST_SKIP() << "the build folder is in memory";
    }
  }

  // Writes the file and leaves only the given ranges of it in the page cache.
  void fill(std::uint64_t size, const std::vector<Range>& kept) {
    for (std::uint64_t offset = 0; offset < size; offset += 1 << 20) {
      write_all(*target, pattern(offset, std::min<std::uint64_t>(1 << 20, size - offset)), offset);
    }
    target->sync();
    // The whole goes: pages that were written together may only go together.
    ASSERT_EQ(::posix_fadvise(target->fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
    ASSERT_EQ(::posix_fadvise(target->fd(), 0, 0, POSIX_FADV_RANDOM), 0);
    for (const Range& range : kept) {
      std::vector<std::byte> bytes(range.size);
      ASSERT_EQ(read_all(*target, bytes, range.offset), range.size);
    }
  }

  TemporaryFolder home;
  std::shared_ptr<File> target;
};

TEST_F(PageCache, a_cold_range_is_told_as_cold_and_stays_cold) {
  fill(4 * mebibyte, {});
  EXPECT_EQ(target->residency({0, 4 * mebibyte}).value_or(Residency{1}).resident_bytes, 0U);
  std::vector<std::byte> bytes(2 * mebibyte);
  EXPECT_EQ(target->read_cached(bytes, mebibyte), std::nullopt);
  ::usleep(50000);
  const auto after = target->residency({0, 4 * mebibyte});
  ASSERT_TRUE(after.has_value());
  if (resident_bytes_by_cachestat(target->fd(), {0, 4 * mebibyte})) {
    EXPECT_EQ(after->resident_bytes, 0U) << "asking started a read";
  }
}

TEST_F(PageCache, a_half_cached_range_is_told_and_read_up_to_the_gap) {
  fill(4 * mebibyte, {{0, 2 * mebibyte}});
  const auto residency = target->residency({mebibyte, 2 * mebibyte});
  ASSERT_TRUE(residency.has_value());
  EXPECT_TRUE(residency->exact);
  EXPECT_EQ(residency->resident_bytes, mebibyte);
  std::vector<std::byte> bytes(2 * mebibyte);
  const auto count = target->read_cached(bytes, mebibyte + 17);
  ASSERT_TRUE(count.has_value());
  EXPECT_LE(*count, mebibyte - 17);
  EXPECT_TRUE(is_pattern(std::span(bytes).first(*count), mebibyte + 17));
  if (resident_bytes_by_cachestat(target->fd(), {0, mebibyte})) {
    EXPECT_EQ(*count, mebibyte - 17);
  }
}

TEST_F(PageCache, what_is_expected_is_read_as_far_as_it_is_there) {
  fill(4 * mebibyte, {{0, mebibyte}});
  std::vector<std::byte> bytes(2 * mebibyte);
  const auto read = [&](std::uint64_t offset, std::size_t size) {
    const iovec piece{bytes.data(), size};
    return target->read_cached_pieces({&piece, 1}, offset, File::PageCache::probable);
  };
  const auto all = read(17, mebibyte - 17);
  if (!all.has_value()) {
    GTEST_SKIP() << "this file system has no reads that do not wait";
  }
  EXPECT_EQ(*all, mebibyte - 17);
  EXPECT_TRUE(is_pattern(std::span(bytes).first(*all), 17));
  // Such a read has the kernel read ahead, which a fast drive may have done when it looks; mostly
  // not.
  EXPECT_TRUE(testing::eventually([&] {
    const auto beyond = read(3 * mebibyte, 4096);
    EXPECT_TRUE(is_pattern(std::span(bytes).first(beyond.value_or(0)), 3 * mebibyte));
    EXPECT_EQ(::posix_fadvise(target->fd(), 2 * mebibyte, 2 * mebibyte, POSIX_FADV_DONTNEED), 0);
    return beyond == std::nullopt;
  }));
  const auto part = read(mebibyte - 8192, 2 * mebibyte);
  ASSERT_TRUE(part.has_value());
  EXPECT_GE(*part, 8192U);
  EXPECT_TRUE(is_pattern(std::span(bytes).first(*part), mebibyte - 8192));
}

TEST_F(PageCache, is_read_ahead_when_asked) {
  fill(4 * mebibyte, {});
  target->begin_read_ahead({mebibyte, 2 * mebibyte});  // in one call, which the kernel may cut
  EXPECT_TRUE(testing::eventually([&] {
    return target->residency({mebibyte, 2 * mebibyte}).value_or(Residency{}).resident_bytes ==
           2 * mebibyte;
  }));
  target->begin_read_ahead({std::uint64_t{1} << 40, mebibyte});  // beyond the end: nothing
}

TEST_F(PageCache, cachestat_and_mincore_agree) {
  fill(4 * mebibyte, {{mebibyte + 4096, mebibyte}});
  for (const Range range : {Range{0, 4 * mebibyte},
                            Range{mebibyte, 8192},
                            Range{mebibyte + 1, 5000},
                            Range{mebibyte + 4095, 1},
                            Range{mebibyte + 4095, 2},
                            Range{2 * mebibyte, 10000}}) {
    const auto by_mincore = resident_bytes_by_mincore(target->fd(), range);
    ASSERT_TRUE(by_mincore.has_value());
    const auto by_cachestat = resident_bytes_by_cachestat(target->fd(), range);
    if (by_cachestat) {
      EXPECT_EQ(*by_cachestat, *by_mincore) << range.offset << "+" << range.size;
    }
  }
}

TEST_F(PageCache, a_range_is_full_only_when_every_page_it_touches_is_there) {
  fill(mebibyte, {{8192, 4096}});
  const auto bytes = resident_bytes_by_mincore(target->fd(), {8191, 4096});
  ASSERT_TRUE(bytes.has_value());
  EXPECT_LT(*bytes, 4096U);
  EXPECT_EQ(resident_bytes_by_mincore(target->fd(), {8192, 4096}), 4096U);
}

TEST_F(PageCache, large_ranges_are_estimated_by_windows) {
  fill(24 * mebibyte, {{0, 12 * mebibyte}});
  const auto residency = target->residency({0, 24 * mebibyte});
  ASSERT_TRUE(residency.has_value());
  EXPECT_FALSE(residency->exact);
  EXPECT_EQ(residency->total_bytes, 24 * mebibyte);
  EXPECT_NEAR(static_cast<double>(residency->resident_bytes), 12.0 * mebibyte, 2.0 * mebibyte);
  EXPECT_EQ(target->residency({0, 12 * mebibyte}).value_or(Residency{}).resident_bytes,
            12 * mebibyte);
  EXPECT_EQ(target->residency({12 * mebibyte, 12 * mebibyte}).value_or(Residency{1}).resident_bytes,
            0U);
}

TEST_F(PageCache, the_boundary_of_exact_counting_is_exact) {
  fill(5 * mebibyte, {});
  EXPECT_TRUE(target->residency({0, residency_exact_bytes_max}).value_or(Residency{}).exact);
  EXPECT_FALSE(target->residency({0, residency_exact_bytes_max + 1}).value_or(Residency{}).exact);
}

TEST_F(PageCache, probing_tells_hot_from_cold) {
  fill(4 * mebibyte, {{0, 2 * mebibyte}});
  std::array<std::byte, 1> byte{};
  const iovec piece{byte.data(), byte.size()};
  if (read_without_waiting(target->fd(), {&piece, 1}, 0) == -EOPNOTSUPP) {
    EXPECT_EQ(resident_bytes_by_probing(target->fd(), {0, mebibyte}), std::nullopt);
    GTEST_SKIP() << "no RWF_NOWAIT on " << target->facts().filesystem;
  }
  // Cold first: reading what is hot may make the kernel read ahead.
  EXPECT_EQ(resident_bytes_by_probing(target->fd(), {3 * mebibyte, mebibyte}), 0U);
  EXPECT_EQ(resident_bytes_by_probing(target->fd(), {0, 2 * mebibyte}), 2 * mebibyte);
  EXPECT_EQ(resident_bytes_by_probing(target->fd(), {5, 3}), 3U);
}

TEST_F(PageCache, a_resident_prefix_ends_at_the_first_gap) {
  fill(4 * mebibyte, {{0, mebibyte}, {mebibyte + 4096, 2 * mebibyte - 4096}});
  const auto prefix = resident_prefix_bytes(target->fd(), {100, 4 * mebibyte - 100});
  if (!prefix) {
    GTEST_SKIP() << "no cachestat in this kernel";
  }
  EXPECT_EQ(*prefix, mebibyte - 100);
  EXPECT_EQ(resident_prefix_bytes(target->fd(), {mebibyte, 4096}), 0U);
  EXPECT_EQ(resident_prefix_bytes(target->fd(), {mebibyte, mebibyte}), 0U);
  EXPECT_EQ(resident_prefix_bytes(target->fd(), {mebibyte - 1, 2}), 1U);
  EXPECT_EQ(resident_prefix_bytes(target->fd(), {2 * mebibyte, 5}), 5U);
}

TEST_F(PageCache, a_strangers_file_is_not_asked_by_mincore) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "needs root to become somebody else";
  }
  fill(mebibyte, {});
  ASSERT_EQ(::fchmod(target->fd(), 0644), 0);
  ASSERT_EQ(::seteuid(65534), 0);
  const auto told = resident_bytes_by_mincore(target->fd(), {0, mebibyte});
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_EQ(told, std::nullopt);
}

}  // namespace
}  // namespace hippogriff
