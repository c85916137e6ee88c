// Sets of byte ranges, by example and against a slow obvious twin.
#include "base/range.hpp"

#include <gtest/gtest.h>

#include <bitset>
#include <random>

namespace hippogriff {
namespace {

using Ranges = std::vector<Range>;

TEST(RangeSet, insert_merges_touching_ranges) {
  RangeSet set;
  set.insert({10, 5});
  set.insert({20, 5});
  EXPECT_EQ(set.ranges(), (Ranges{{10, 5}, {20, 5}}));
  set.insert({15, 5});
  EXPECT_EQ(set.ranges(), (Ranges{{10, 15}}));
  set.insert({0, 100});
  EXPECT_EQ(set.ranges(), (Ranges{{0, 100}}));
}

TEST(RangeSet, insert_inside_changes_nothing) {
  RangeSet set;
  set.insert({10, 10});
  set.insert({12, 3});
  set.insert({10, 10});
  EXPECT_EQ(set.ranges(), (Ranges{{10, 10}}));
  EXPECT_EQ(set.total_bytes(), 10U);
}

TEST(RangeSet, empty_ranges_leave_no_trace) {
  RangeSet set;
  set.insert({5, 0});
  EXPECT_TRUE(set.empty());
  set.insert({0, 10});
  set.erase({5, 0});
  EXPECT_EQ(set.ranges(), (Ranges{{0, 10}}));
  EXPECT_FALSE(set.overlaps({5, 0}));
  EXPECT_TRUE(set.contains({50, 0}));
}

TEST(RangeSet, erase_splits_and_trims) {
  RangeSet set;
  set.insert({0, 30});
  set.erase({10, 10});
  EXPECT_EQ(set.ranges(), (Ranges{{0, 10}, {20, 10}}));
  set.erase({5, 20});
  EXPECT_EQ(set.ranges(), (Ranges{{0, 5}, {25, 5}}));
  set.erase({0, 100});
  EXPECT_TRUE(set.empty());
}

TEST(RangeSet, touching_is_not_overlapping) {
  RangeSet set;
  set.insert({10, 10});
  EXPECT_FALSE(set.overlaps({0, 10}));
  EXPECT_FALSE(set.overlaps({20, 10}));
  EXPECT_TRUE(set.overlaps({19, 1}));
  EXPECT_TRUE(set.overlaps({0, 11}));
  EXPECT_TRUE(set.contains({10, 10}));
  EXPECT_FALSE(set.contains({10, 11}));
  EXPECT_FALSE(set.contains({9, 2}));
}

TEST(RangeSet, missing_from_names_the_holes_in_order) {
  RangeSet set;
  EXPECT_EQ(set.missing_from({3, 4}), (Ranges{{3, 4}}));
  set.insert({0, 5});
  set.insert({10, 5});
  EXPECT_EQ(set.missing_from({0, 20}), (Ranges{{5, 5}, {15, 5}}));
  EXPECT_EQ(set.missing_from({2, 10}), (Ranges{{5, 5}}));
  EXPECT_EQ(set.missing_from({10, 5}), Ranges{});
  EXPECT_EQ(set.missing_from({7, 0}), Ranges{});
}

TEST(RangeSet, reaches_the_last_byte_of_64_bits) {
  RangeSet set;
  set.insert({UINT64_MAX - 10, 10});
  EXPECT_TRUE(set.contains({UINT64_MAX - 1, 1}));
  EXPECT_EQ(set.missing_from({UINT64_MAX - 20, 20}), (Ranges{{UINT64_MAX - 20, 10}}));
}

TEST(RangeSetDeathTest, range_past_64_bits_is_our_bug) {
  RangeSet set;
  EXPECT_DEATH(set.insert({UINT64_MAX, 2}), "assertion failed");
}

TEST(RangeSet, agrees_with_a_bitmap_on_random_work) {
  constexpr std::size_t space = 96;
  constexpr std::uint32_t seed = 20240607;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  RangeSet set;
  std::bitset<space> bitmap;
  for (int step = 0; step < 5000; ++step) {
    const std::uint64_t begin = random() % space;
    const Range range{begin, random() % (space - begin + 1)};
    const bool adding = random() % 2 == 0;
    adding ? set.insert(range) : set.erase(range);
    for (std::uint64_t at = range.offset; at < range.end(); ++at) {
      bitmap.set(at, adding);
    }
    std::bitset<space> ours;
    for (const Range& part : set.ranges()) {
      for (std::uint64_t at = part.offset; at < part.end(); ++at) {
        ours.set(at);
      }
    }
    ASSERT_EQ(ours, bitmap) << "step " << step;
    ASSERT_EQ(set.total_bytes(), bitmap.count());
  }
}

TEST(Align, rounds_to_multiples_down_and_up) {
  EXPECT_EQ(align_down(4095, 4096), 0U);
  EXPECT_EQ(align_down(4096, 4096), 4096U);
  EXPECT_EQ(align_up(1, 256), 256U);
  EXPECT_EQ(align_up(256, 256), 256U);
  EXPECT_EQ(align_up(0, 256), 0U);
}

}  // namespace
}  // namespace hippogriff
