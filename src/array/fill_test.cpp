// Elements that are made in their line, without a copy.
#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint64_t line_bytes = 512;

TEST(FillRange, elements_are_made_where_they_go) {
  TestArray array({.size_bytes = 65000, .cache_bytes = 8 * line_bytes});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::byte> before = array.stored();
  std::uint64_t next = 100;  // in the middle of a line
  const auto fill = [&](std::uint64_t first, std::uint64_t count, std::uint32_t* to) {
    EXPECT_EQ(first, next);
    EXPECT_LE(first % 128 + count, 128U);
    next = first + count;
    std::iota(to, to + count, static_cast<std::uint32_t>(first));
  };
  ASSERT_EQ(view.fill_range(Alone{}, 100, view.size() - 100, fill), NvmeStatus::success);
  EXPECT_EQ(next, view.size());
  EXPECT_EQ(array.array().served().reads, 1U);
  array.array().flush();
  std::vector<std::uint32_t> expected(view.size());
  std::iota(expected.begin(), expected.end(), 0U);
  std::memcpy(expected.data(), before.data(), 100 * sizeof expected[0]);
  EXPECT_EQ(std::memcmp(array.stored().data(), expected.data(), 65000), 0);
}

TEST(FillRange, elements_that_straddle_lines_are_not_filled) {
  struct Point {
    float x, y, z;
  };

  TestArray array({.cache_bytes = 8 * line_bytes});
  const auto view = array.view<Point>();
  const auto fill = [](std::uint64_t, std::uint64_t, Point*) { FAIL(); };
  const auto fill_nothing = [](std::uint64_t, std::uint64_t, float*) { FAIL(); };
  EXPECT_EQ(view.fill_range(Alone{}, 0, 1, fill), NvmeStatus::invalid_field);
  EXPECT_EQ(
      array.view<float>().fill_range(Alone{}, 0, array.view<float>().size() + 1, fill_nothing),
      NvmeStatus::out_of_range);
}

}  // namespace

}  // namespace hippogriff::ondemand
