// When a part that was written goes on to the drive.
#include "array/write_behind.hpp"

#include "testing/bytes.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

TEST(WriteBehind, asks_for_a_region_once_all_of_it_was_written) {
  WriteBehind array(20 * mebibyte);
  EXPECT_FALSE(array.note_written({8 * mebibyte, 5 * mebibyte}));
  EXPECT_FALSE(array.note_written({0, 7 * mebibyte}));
  const auto second = array.note_written({13 * mebibyte, 3 * mebibyte});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, 8 * mebibyte);
  EXPECT_EQ(second->size, 8 * mebibyte);
  EXPECT_FALSE(array.note_written({8 * mebibyte, 7 * mebibyte}));
  EXPECT_TRUE(array.note_written({8 * mebibyte, 1 * mebibyte}));
}

TEST(WriteBehind, knows_that_the_last_region_is_shorter) {
  WriteBehind array(17 * mebibyte + 5);
  EXPECT_FALSE(array.note_written({16 * mebibyte, 1 * mebibyte}));
  const auto last = array.note_written({17 * mebibyte, 5});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->end(), 17 * mebibyte + 5);
}

TEST(WriteBehind, takes_arrays_of_any_size) {
  WriteBehind tiny(1);
  EXPECT_TRUE(tiny.note_written({0, 1}));
  WriteBehind huge(std::uint64_t{1} << 60U);
  EXPECT_FALSE(huge.note_written({(std::uint64_t{1} << 60U) - 512, 512}));
}

}  // namespace
}  // namespace hippogriff::ondemand
