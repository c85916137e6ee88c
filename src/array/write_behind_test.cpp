// When a part that was written goes on to the drive.
#include "array/write_behind.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

TEST(WriteBehind, asks_for_a_region_once_all_of_it_was_written) {
  WriteBehind array(20 * mib);
  EXPECT_FALSE(array.note_written({8 * mib, 5 * mib}));
  EXPECT_FALSE(array.note_written({0, 7 * mib}));
  const auto second = array.note_written({13 * mib, 3 * mib});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, 8 * mib);
  EXPECT_EQ(second->size, 8 * mib);
  EXPECT_FALSE(array.note_written({8 * mib, 7 * mib}));
  EXPECT_TRUE(array.note_written({8 * mib, 1 * mib}));
}

TEST(WriteBehind, knows_that_the_last_region_is_shorter) {
  WriteBehind array(17 * mib + 5);
  EXPECT_FALSE(array.note_written({16 * mib, 1 * mib}));
  const auto last = array.note_written({17 * mib, 5});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->end(), 17 * mib + 5);
}

TEST(WriteBehind, takes_arrays_of_any_size) {
  WriteBehind tiny(1);
  EXPECT_TRUE(tiny.note_written({0, 1}));
  WriteBehind huge(std::uint64_t{1} << 60U);
  EXPECT_FALSE(huge.note_written({(std::uint64_t{1} << 60U) - 512, 512}));
}

}  // namespace
}  // namespace hippogriff::ondemand
