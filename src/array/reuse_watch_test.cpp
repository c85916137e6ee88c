// Which way gathers take, by what of them a cache would have had.
#include "array/reuse_watch.hpp"

#include <gtest/gtest.h>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t cache_lines = 100;
constexpr double hits_enough = 0.2;

// Gathers of one kind, each of which has ended before the next is queued.
class Gathers {
 public:
  explicit Gathers(double hits) : hits_(hits) {}

  void change(double hits) { hits_ = hits; }

  // How many of so many gathers came through the cache.
  int through_cache(int gathers, std::uint64_t lines = 50) {
    int through = 0;
    for (int i = 0; i < gathers; ++i) {
      if (watch.takes_cache(lines, static_cast<std::uint64_t>(reads_))) {
        reads_ += (1 - hits_) * static_cast<double>(lines);
        ++through;
      }
    }
    return through;
  }

  ReuseWatch watch{hits_enough, cache_lines};

 private:
  double hits_;
  double reads_ = 1000;
};

TEST(ReuseWatch, lets_the_first_gather_go_as_was_predicted_and_looks_at_the_next) {
  Gathers gathers(0);
  EXPECT_EQ(gathers.through_cache(1), 0);
  EXPECT_EQ(gathers.through_cache(4), 4) << "200 lines";
  EXPECT_FALSE(gathers.watch.seen().hits.has_value());
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, reads_past_the_cache_what_is_not_asked_for_again_but_for_one_of_sixteen) {
  Gathers gathers(0.1);
  gathers.through_cache(5);
  EXPECT_EQ(gathers.through_cache(1600), 100);
  EXPECT_NEAR(gathers.watch.seen().hits.value(), 0.1, 0.02);
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, takes_the_cache_for_what_is_asked_for_again) {
  Gathers gathers(0.9);
  gathers.through_cache(5);
  EXPECT_EQ(gathers.through_cache(1000), 1000);
  EXPECT_NEAR(gathers.watch.seen().hits.value(), 0.9, 0.02);
  EXPECT_FALSE(gathers.watch.seen().past);
}

TEST(ReuseWatch, notices_that_a_program_has_changed) {
  Gathers gathers(0);
  gathers.through_cache(100);
  EXPECT_TRUE(gathers.watch.seen().past);
  gathers.change(0.9);
  gathers.through_cache(16 * 9);  // two looks of four: one may have begun before
  EXPECT_FALSE(gathers.watch.seen().past);
  gathers.change(0);
  gathers.through_cache(9);
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, takes_one_large_gather_for_a_look) {
  Gathers gathers(0.9);
  EXPECT_EQ(gathers.through_cache(1, 1'000'000), 0);
  EXPECT_EQ(gathers.through_cache(1, 1'000'000), 1);
  EXPECT_EQ(gathers.through_cache(10, 1'000'000), 10);
  EXPECT_FALSE(gathers.watch.seen().past);
}

TEST(ReuseWatch, takes_the_cache_while_nothing_of_what_was_queued_has_been_read) {
  ReuseWatch watch(hits_enough, cache_lines);
  int through = 0;
  for (int i = 0; i < 100; ++i) {
    through += watch.takes_cache(50, 7) ? 1 : 0;
  }
  EXPECT_EQ(through, 99);
}

TEST(ReuseWatch, takes_the_cache_for_rows_that_were_asked_for_ahead_and_counts_none_of_them) {
  Gathers gathers(0);
  gathers.through_cache(100);
  for (int i = 0; i < 20; ++i) {
    gathers.watch.asked_ahead();
    EXPECT_TRUE(gathers.watch.takes_cache(50, 1000));
  }
  EXPECT_TRUE(gathers.watch.seen().past);
  EXPECT_EQ(gathers.watch.seen().hits.value(), 0);
}

TEST(ReuseWatch, never_goes_past_the_cache_again_where_no_hit_is_needed) {
  ReuseWatch watch(0, cache_lines);
  int through = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    through += watch.takes_cache(50, 50 * i) ? 1 : 0;
  }
  EXPECT_EQ(through, 99);
}

}  // namespace
}  // namespace hippogriff::ondemand
