// Which way gathers take, by what a cache has of them: here one that keeps what was asked for last.
#include "array/reuse_watch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t cache_lines = 100;
constexpr std::uint64_t gather_lines = 50;
constexpr double hits_enough = 0.2;

// Gathers each of which has ended before the next is queued.
class Gathers {
 public:
  // Gathers lines, whichever way; whether it was through the cache.
  bool gather(std::uint64_t first, std::uint64_t count = gather_lines) {
    const bool through = watch.takes_cache(count, reads_);
    for (std::uint64_t line = first; through && line < first + count; ++line) {
      touch(line);
    }
    return through;
  }

  // Lines that nobody asked for before; how many of so many gathers came through the cache.
  int gather_new(int gathers) {
    int through = 0;
    for (; gathers > 0; --gathers, next_ += gather_lines) {
      through += gather(next_) ? 1 : 0;
    }
    return through;
  }

  // Of the lines of the gather before, all but one in five again.
  int gather_overlapping(int gathers) {
    int through = 0;
    for (; gathers > 0; --gathers, next_ += gather_lines / 5) {
      through += gather(next_) ? 1 : 0;
    }
    return through;
  }

  void read_by_others(std::uint64_t lines) { reads_ += lines; }

  ReuseWatch watch{hits_enough, cache_lines};

 private:
  void touch(std::uint64_t line) {
    const auto found = std::ranges::find(cached_, line);
    if (found == cached_.end()) {
      ++reads_;
    } else {
      cached_.erase(found);
    }
    cached_.push_back(line);
    if (cached_.size() > cache_lines) {
      cached_.pop_front();
    }
  }

  std::uint64_t next_ = 1'000'000;
  std::uint64_t reads_ = 1000;
  std::deque<std::uint64_t> cached_;
};

TEST(ReuseWatch, lets_the_first_gather_go_as_was_predicted_and_looks_at_the_next) {
  Gathers gathers;
  EXPECT_EQ(gathers.gather_new(1), 0);
  EXPECT_EQ(gathers.gather_new(4), 4) << "200 lines";
  EXPECT_FALSE(gathers.watch.seen().hits.has_value());
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, reads_past_the_cache_what_is_not_asked_for_again_but_for_one_look_of_sixteen) {
  Gathers gathers;
  gathers.gather_new(5);
  EXPECT_EQ(gathers.gather_new(640), 40);
  EXPECT_EQ(gathers.watch.seen().hits.value(), 0);
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, takes_the_cache_for_what_is_asked_for_again) {
  Gathers gathers;
  int through = 0;
  for (int i = 0; i < 1000; ++i) {
    through += gathers.gather(0) ? 1 : 0;
  }
  EXPECT_EQ(through, 999);
  EXPECT_EQ(gathers.watch.seen().hits.value(), 1);
  EXPECT_FALSE(gathers.watch.seen().past);
}

TEST(ReuseWatch, notices_that_a_program_begins_to_ask_again_for_what_it_had_just_now) {
  Gathers gathers;
  gathers.gather_new(200);
  EXPECT_TRUE(gathers.watch.seen().past);
  gathers.gather_overlapping(70);
  EXPECT_FALSE(gathers.watch.seen().past);
  EXPECT_EQ(gathers.gather_overlapping(100), 100);
  gathers.gather_new(9);
  EXPECT_TRUE(gathers.watch.seen().past);
}

TEST(ReuseWatch, takes_one_large_gather_for_a_look) {
  ReuseWatch watch(hits_enough, cache_lines);
  EXPECT_FALSE(watch.takes_cache(1'000'000, 0));
  EXPECT_TRUE(watch.takes_cache(1'000'000, 0));
  EXPECT_TRUE(watch.takes_cache(1'000'000, 100'000));
  EXPECT_FALSE(watch.seen().past);
  EXPECT_NEAR(watch.seen().hits.value(), 0.9, 1e-9);
}

TEST(ReuseWatch, takes_the_cache_while_nothing_of_what_was_queued_has_been_read) {
  ReuseWatch watch(hits_enough, cache_lines);
  int through = 0;
  for (int i = 0; i < 100; ++i) {
    through += watch.takes_cache(gather_lines, 7) ? 1 : 0;
  }
  EXPECT_EQ(through, 99);
}

TEST(ReuseWatch, takes_the_cache_for_each_gather_that_was_asked_for_ahead_and_looks_on) {
  Gathers gathers;
  gathers.gather_new(6);
  ASSERT_TRUE(gathers.watch.seen().hits.has_value());
  for (int i = 0; i < 3; ++i) {
    gathers.watch.asked_ahead();
  }
  EXPECT_EQ(gathers.gather_new(4), 3);
  int through = 0;
  for (int i = 0; i < 640; ++i) {
    if (i % 16 == 0) {
      gathers.watch.asked_ahead();
    }
    through += gathers.gather_new(1);
  }
  EXPECT_LT(through, 100);
}

TEST(ReuseWatch, forgets_what_was_asked_for_ahead_and_never_gathered) {
  ReuseWatch watch(hits_enough, cache_lines);
  for (int i = 0; i < 1000; ++i) {
    watch.asked_ahead();
  }
  std::uint64_t reads = 0;
  int through = 0;
  for (int i = 0; i < 100; ++i) {
    through += watch.takes_cache(10 * cache_lines, reads) ? 1 : 0;
    reads += 10 * cache_lines;
  }
  EXPECT_LT(through, 90);
}

TEST(ReuseWatch, takes_what_others_read_for_misses) {
  Gathers gathers;
  gathers.gather(0);
  for (int i = 0; i < 8; ++i) {
    gathers.gather(0);
    gathers.read_by_others(gather_lines);
  }
  EXPECT_TRUE(gathers.watch.seen().past) << "as its comment says";
}

TEST(ReuseWatch, never_goes_past_the_cache_again_where_no_hit_is_needed) {
  ReuseWatch watch(0, cache_lines);
  int through = 0;
  for (std::uint64_t i = 0; i < 100; ++i) {
    through += watch.takes_cache(gather_lines, gather_lines * i) ? 1 : 0;
  }
  EXPECT_EQ(through, 99);
}

}  // namespace
}  // namespace hippogriff::ondemand
