// When a file is read from its beginning to its end beside the reads of an array.
#include "array/sweep.hpp"

#include "testing/array_fixture.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t line_bytes = 4096;

std::uint64_t reads_until_worth(std::uint64_t file_bytes, std::uint64_t most) {
  Sweep sweep(file_bytes);
  for (std::uint64_t reads = 1; reads <= most; ++reads) {
    if (sweep.note()) {
      for (std::uint64_t more = 0; more < most; ++more) {
        EXPECT_FALSE(sweep.note()) << "it is said once";
      }
      return reads;
    }
  }
  return 0;
}

TEST(Sweep, is_worth_it_after_a_128th_of_the_pages) {
  EXPECT_EQ(reads_until_worth(1024 * mib, 10'000), 2048U);
  EXPECT_EQ(reads_until_worth(2048 * mib, 10'000), 4096U);
}

TEST(Sweep, is_not_worth_it_for_a_few_reads) {
  EXPECT_EQ(reads_until_worth(1, 10'000), 512U);
}

TEST(Sweep, is_never_worth_it_for_a_large_file_or_none) {
  EXPECT_EQ(reads_until_worth(2048 * mib + 1, 100'000), 0U);
  EXPECT_EQ(reads_until_worth(0, 100'000), 0U);
}

// An array of a file of which nothing seems to be in the page cache.
class SweepOfAnArray : public ::testing::Test {
 protected:
  static constexpr std::uint64_t size_bytes = 4 * mib;

  explicit SweepOfAnArray()
      : array_({.size_bytes = size_bytes, .cache_bytes = 64 << 10, .line_bytes = line_bytes}) {
    array_.plan().add(
        {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
  }

  // Each line of them from its drive.
  void read_lines(std::uint64_t count) {
    const std::vector<std::byte> stored = array_.stored();
    const array_view<std::uint64_t> view = array_.view<std::uint64_t>();
    for (std::uint64_t line = 0; line < count; ++line) {
      std::uint64_t value = 0;
      const std::uint64_t offset = line * line_bytes;
      ASSERT_EQ(view.read(offset / sizeof value, value), NvmeStatus::success);
      ASSERT_EQ(std::memcmp(&value, &stored[offset], sizeof value), 0);
    }
  }

  [[nodiscard]] std::uint64_t pieces_read() { return array_.plan().seen(FaultPoint::read); }

  TestArray array_;
};

TEST_F(SweepOfAnArray, reads_all_of_the_file_once) {
  read_lines(511);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pieces_read(), 0U) << "too few were read";
  read_lines(1000);
  EXPECT_TRUE(
      testing::eventually([&] { return pieces_read() >= size_bytes / Sweep::piece_bytes; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pieces_read(), size_bytes / Sweep::piece_bytes);
}

TEST_F(SweepOfAnArray, goes_on_behind_what_was_read) {
  array_.plan().add(
      {.point = FaultPoint::read, .kind = FaultKind::shorten, .times = 2, .bytes = 4096});
  read_lines(512);
  EXPECT_TRUE(testing::eventually([&] { return pieces_read() > size_bytes / Sweep::piece_bytes; }));
}

TEST_F(SweepOfAnArray, ends_where_it_cannot_read) {
  array_.plan().add({.point = FaultPoint::read, .kind = FaultKind::error, .times = UINT64_MAX});
  read_lines(512);
  EXPECT_TRUE(testing::eventually([&] { return pieces_read() != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(pieces_read(), 1U);
  read_lines(1000);  // and nobody else notices
}

TEST_F(SweepOfAnArray, ends_with_the_array) {
  array_.plan().add({.point = FaultPoint::read,
                     .kind = FaultKind::delay,
                     .times = UINT64_MAX,
                     .delay = std::chrono::milliseconds(50)});
  read_lines(512);
  EXPECT_TRUE(testing::eventually([&] { return pieces_read() != 0; }));
  array_.array().close();
  const std::uint64_t then = pieces_read();
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_LE(pieces_read(), then + 1) << "the piece that was under way";
}

}  // namespace
}  // namespace hippogriff::ondemand
