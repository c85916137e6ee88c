// Which regions of a new array somebody has to have blocks for.
#include "array/first_writes.hpp"

#include "testing/bytes.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

TEST(FirstWrites, tell_of_a_region_once) {
  FirstWrites array(40 * mebibyte);
  const auto second = array.note({20 * mebibyte, 4096});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, 16 * mebibyte);
  EXPECT_EQ(second->size, 16 * mebibyte);
  EXPECT_FALSE(array.note({16 * mebibyte, 4096}));
  EXPECT_TRUE(array.note({0, 4096}));
  const auto last = array.note({40 * mebibyte - 1, 1});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->offset, 32 * mebibyte);
  EXPECT_EQ(last->end(), 40 * mebibyte);
  EXPECT_EQ(array.left_bytes(), 40 * mebibyte) << "whoever was told may have found no room";
  array.note_allocated(*last);
  EXPECT_EQ(array.left_bytes(), 32 * mebibyte);
}

TEST(FirstWrites, take_arrays_of_any_size) {
  FirstWrites tiny(1);
  EXPECT_TRUE(tiny.note({0, 1}));
  FirstWrites huge(std::uint64_t{1} << 60U);
  EXPECT_TRUE(huge.note({(std::uint64_t{1} << 60U) - 512, 512}));
}

}  // namespace
}  // namespace hippogriff::ondemand
