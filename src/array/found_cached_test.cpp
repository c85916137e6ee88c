// Where reads need not ask what is in the page cache.
#include "array/found_cached.hpp"

#include "testing/bytes.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

void note(FoundCached& found, std::uint64_t offset, bool all, int times) {
  for (int i = 0; i < times; ++i) {
    found.note(offset, all);
  }
}

TEST(FoundCached, trusts_a_region_in_which_reads_found_all_several_times_in_a_row) {
  FoundCached found(20 * mebibyte);
  EXPECT_FALSE(found.did_lately(8 * mebibyte));
  note(found, 8 * mebibyte, true, 7);
  EXPECT_FALSE(found.is_likely(8 * mebibyte));
  EXPECT_TRUE(found.did_lately(8 * mebibyte));
  EXPECT_FALSE(found.did_lately(0));
  found.note(16 * mebibyte - 1, true);
  EXPECT_TRUE(found.is_likely(8 * mebibyte));
  EXPECT_TRUE(found.is_likely(16 * mebibyte - 1));
  EXPECT_FALSE(found.is_likely(8 * mebibyte - 1));
  EXPECT_FALSE(found.is_likely(16 * mebibyte));
}

TEST(FoundCached, trusts_it_no_more_once_something_was_not_there) {
  FoundCached found(mebibyte);
  note(found, 0, true, 1000);
  found.note(4096, false);
  EXPECT_FALSE(found.is_likely(0));
  EXPECT_FALSE(found.did_lately(0));
  note(found, 0, true, 7);
  EXPECT_FALSE(found.is_likely(0));
  found.note(0, true);
  EXPECT_TRUE(found.is_likely(0));
}

TEST(FoundCached, takes_arrays_of_any_size) {
  FoundCached tiny(1);
  note(tiny, 0, true, 8);
  EXPECT_TRUE(tiny.is_likely(0));
  FoundCached huge(std::uint64_t{1} << 60U);
  const std::uint64_t last = (std::uint64_t{1} << 60U) - 512;
  note(huge, last, true, 8);
  EXPECT_TRUE(huge.is_likely(last));
  EXPECT_FALSE(huge.is_likely(0));
}

}  // namespace
}  // namespace hippogriff::ondemand
