// Which regions of a new array somebody has to have blocks for.
#include "array/first_writes.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;

TEST(FirstWrites, tell_of_a_region_once) {
  FirstWrites array(40 * mib);
  const auto second = array.note({20 * mib, 4096});
  ASSERT_TRUE(second);
  EXPECT_EQ(second->offset, 16 * mib);
  EXPECT_EQ(second->size, 16 * mib);
  EXPECT_FALSE(array.note({16 * mib, 4096}));
  EXPECT_TRUE(array.note({0, 4096}));
  const auto last = array.note({40 * mib - 1, 1});
  ASSERT_TRUE(last);
  EXPECT_EQ(last->offset, 32 * mib);
  EXPECT_EQ(last->end(), 40 * mib);
  EXPECT_EQ(array.left_bytes(), 40 * mib) << "whoever was told may have found no room";
  array.note_allocated(*last);
  EXPECT_EQ(array.left_bytes(), 32 * mib);
}

TEST(FirstWrites, take_arrays_of_any_size) {
  FirstWrites tiny(1);
  EXPECT_TRUE(tiny.note({0, 1}));
  FirstWrites huge(std::uint64_t{1} << 60U);
  EXPECT_TRUE(huge.note({(std::uint64_t{1} << 60U) - 512, 512}));
}

}  // namespace
}  // namespace hippogriff::ondemand
