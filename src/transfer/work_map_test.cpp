// Claims cover every byte once, from both ends, whatever is warm.
#include "transfer/work_map.hpp"

#include "testing/bytes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <new>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

// Alternates warm and cold every `stride` bytes of the file.
WorkMap::Classifier striped(std::uint64_t stride) {
  return [stride](Range block) {
    std::vector<WarmRange> runs;
    for (std::uint64_t at = block.offset; at < block.end();) {
      const std::uint64_t end = std::min(block.end(), align_down(at, stride) + stride);
      runs.push_back({{at, end - at}, at / stride % 2 == 0 ? Warmth::warm : Warmth::cold});
      at = end;
    }
    return runs;
  };
}

TEST(WorkMap, without_classifier_everything_has_the_given_warmth) {
  WorkMap warm({100, 50}, nullptr, Warmth::warm);
  EXPECT_FALSE(warm.claim_cold(4096));
  EXPECT_EQ(warm.claim_warm(4096), (Range{100, 50}));
  EXPECT_FALSE(warm.claim_warm(4096));
  WorkMap cold({100, 50}, nullptr, Warmth::cold);
  EXPECT_FALSE(cold.claim_warm(4096));
  EXPECT_EQ(cold.claim_cold(4096), (Range{100, 50}));
}

TEST(WorkMap, goes_on_behind_a_block_that_there_was_no_memory_to_look_up) {
  constexpr std::uint64_t first_bytes = WorkMap::first_block_bytes;
  bool first = true;
  WorkMap work(
      {0, 2 * first_bytes},
      [&first](Range block) -> std::vector<WarmRange> {
        if (std::exchange(first, false)) {
          throw std::bad_alloc();
        }
        return {{block, Warmth::warm}};
      },
      Warmth::warm);
  EXPECT_THROW(work.claim_warm(first_bytes), std::bad_alloc);
  EXPECT_EQ(work.perhaps_warm_bytes(), first_bytes);
  EXPECT_EQ(work.claim_warm(first_bytes), (Range{first_bytes, first_bytes}));
  EXPECT_FALSE(work.claim_warm(first_bytes)) << "nobody looks at the lost block any more";
}

TEST(WorkMap, empty_extent_has_nothing_to_claim) {
  WorkMap work({4096, 0}, nullptr, Warmth::warm);
  EXPECT_FALSE(work.claim_warm(4096));
  EXPECT_FALSE(work.claim_warm_window(4096));
  EXPECT_EQ(work.unclaimed_bytes(), 0U);
}

TEST(WorkMap, front_pieces_end_on_cuts) {
  WorkMap work({1000, 20000}, nullptr, Warmth::warm);
  EXPECT_EQ(work.claim_warm(8192), (Range{1000, 7192}));
  EXPECT_EQ(work.claim_warm(8192), (Range{8192, 8192}));
  EXPECT_EQ(work.claim_warm(8192), (Range{16384, 4616}));
}

TEST(WorkMap, windows_begin_on_cuts_and_come_from_the_back) {
  WorkMap work({1000, 20000}, nullptr, Warmth::warm);
  EXPECT_EQ(work.claim_warm_window(8192), (Range{16384, 4616}));
  EXPECT_EQ(work.claim_warm_window(8192), (Range{8192, 8192}));
  EXPECT_EQ(work.claim_warm_window(8192), (Range{1000, 7192}));
}

// Here what is claimed ends at multiples of 1000, where it can; windows and cold pieces do not.
TEST(WorkMap, front_pieces_are_as_short_as_their_user_wants_them) {
  const auto shorten = [](Range longest) {
    const std::uint64_t end = align_down(longest.end(), 1000);
    return end > longest.offset ? end - longest.offset : longest.size;
  };
  WorkMap work({500, 30000}, nullptr, Warmth::warm, shorten);
  EXPECT_EQ(work.claim_warm(8192), (Range{500, 7500}));
  EXPECT_EQ(work.claim_warm(8192), (Range{8000, 4000})) << "counted from the cut below";
  EXPECT_EQ(work.claim_warm_window(8192), (Range{24576, 5924}));
  EXPECT_EQ(work.claim_warm(1 << 20), (Range{12000, 12000}));
  EXPECT_EQ(work.claim_warm(1 << 20), (Range{24000, 576})) << "all of what is left";
  EXPECT_FALSE(work.claim_warm(1 << 20));
  EXPECT_EQ(work.unclaimed_bytes(), 0U);
  WorkMap cold({500, 30000}, nullptr, Warmth::cold, shorten);
  EXPECT_EQ(cold.claim_cold(8192), (Range{500, 7692}));
}

TEST(WorkMap, given_back_bytes_can_be_claimed_as_the_other_kind) {
  WorkMap work({0, 8192}, nullptr, Warmth::warm);
  const auto piece = work.claim_warm(8192);
  ASSERT_TRUE(piece);
  work.give_back({4096, 4096}, Warmth::cold);
  EXPECT_EQ(work.unclaimed_bytes(), 4096U);
  EXPECT_FALSE(work.claim_warm(8192));
  EXPECT_EQ(work.claim_cold(8192), (Range{4096, 4096}));
}

TEST(WorkMap, what_is_held_back_is_claimed_only_when_released) {
  for (const Warmth warmth : {Warmth::warm, Warmth::cold}) {
    WorkMap work({1000, 20000}, nullptr, warmth);
    EXPECT_FALSE(work.release_held());
    work.hold_back(20480);
    const auto claim = [&] {
      return warmth == Warmth::warm ? work.claim_warm(1 << 20) : work.claim_cold(1 << 20);
    };
    EXPECT_FALSE(work.release_held()) << "the rest comes first";
    EXPECT_EQ(claim(), (Range{1000, 19480}));
    EXPECT_FALSE(claim());
    EXPECT_FALSE(work.claim_warm_window(1 << 20));
    EXPECT_EQ(work.unclaimed_bytes(), 520U);
    EXPECT_TRUE(work.release_held());
    EXPECT_EQ(work.claim_warm(1 << 20), (Range{20480, 520}));
    EXPECT_EQ(work.unclaimed_bytes(), 0U);
    EXPECT_FALSE(work.release_held());
  }
}

TEST(WorkMap, cold_claimer_finds_the_cold_end_of_a_warm_file) {
  const std::uint64_t size = 10 * WorkMap::block_bytes;
  WorkMap work(
      {0, size},
      [](Range block) -> std::vector<WarmRange> {
        return {{block, block.end() == size ? Warmth::cold : Warmth::warm}};
      },
      Warmth::warm);
  const auto piece = work.claim_cold(4 * mebibyte);
  ASSERT_TRUE(piece);
  EXPECT_EQ(piece->offset, size - WorkMap::block_bytes);
}

TEST(WorkMap, cold_claimer_finds_either_end_soon) {
  const std::uint64_t size = 16 * WorkMap::block_bytes;
  for (const bool cold_first : {false, true}) {
    std::uint64_t looked_up_bytes = 0;
    WorkMap work(
        {0, size},
        [&](Range block) -> std::vector<WarmRange> {
          looked_up_bytes += block.size;
          return {{block, (block.offset < size / 2) == cold_first ? Warmth::cold : Warmth::warm}};
        },
        Warmth::warm);
    ASSERT_TRUE(work.claim_cold(mebibyte));
    EXPECT_LE(looked_up_bytes, WorkMap::first_block_bytes + WorkMap::block_bytes);
    std::uint64_t cold_bytes = mebibyte;
    while (const auto piece = work.claim_cold(mebibyte)) {
      EXPECT_EQ(piece->offset < size / 2, cold_first);
      cold_bytes += piece->size;
    }
    EXPECT_EQ(cold_bytes, size / 2);
    EXPECT_EQ(looked_up_bytes, size);
  }
}

TEST(WorkMap, first_claim_looks_a_small_block_up_and_later_ones_little_more_than_they_need) {
  std::uint64_t looked_up_bytes = 0;
  WorkMap work(
      {0, 10 * WorkMap::block_bytes},
      [&](Range block) -> std::vector<WarmRange> {
        looked_up_bytes += block.size;
        return {{block, Warmth::warm}};
      },
      Warmth::cold);
  ASSERT_TRUE(work.claim_warm(mebibyte));
  EXPECT_EQ(looked_up_bytes, WorkMap::first_block_bytes);
  std::uint64_t most_ahead_bytes = 0;
  for (std::uint64_t claimed_bytes = mebibyte; work.claim_warm(mebibyte);) {
    claimed_bytes += mebibyte;
    most_ahead_bytes = std::max(most_ahead_bytes, looked_up_bytes - claimed_bytes);
  }
  EXPECT_EQ(looked_up_bytes, 10 * WorkMap::block_bytes);
  EXPECT_LT(most_ahead_bytes, 2 * WorkMap::block_bytes);
}

// Two threads claim where one of them looks up the block after what is known: the other goes on.
TEST(WorkMap, claims_go_on_while_the_next_block_is_looked_up) {
  std::promise<void> looking;
  std::promise<void> claimed;
  int blocks = 0;
  WorkMap work(
      {0, 10 * WorkMap::block_bytes},
      [&](Range block) -> std::vector<WarmRange> {
        if (++blocks == 2) {
          looking.set_value();
          EXPECT_EQ(claimed.get_future().wait_for(std::chrono::seconds(60)),
                    std::future_status::ready);
        }
        return {{block, Warmth::warm}};
      },
      Warmth::cold);
  ASSERT_TRUE(work.claim_warm(4096));
  std::thread second([&] { EXPECT_TRUE(work.claim_warm(4096)); });
  ASSERT_EQ(looking.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(work.claim_warm(4096), (Range{4096, 4096}));
  claimed.set_value();
  second.join();
}

// The property: claimed by many threads from all sides, every byte is claimed once, with its
// warmth.
void claim_by_threads(Range extent, std::uint64_t stride, std::uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  WorkMap work(extent, striped(stride), Warmth::warm);
  std::mutex mutex;
  RangeSet claimed;
  std::uint64_t claimed_bytes = 0;
  std::atomic<int> mistakes{0};
  const auto claimer = [&](int kind) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(kind));
    while (true) {
      const std::uint64_t most = 4096 * (1 + random() % 2048);
      const auto piece = kind == 0   ? work.claim_warm(most)
                         : kind == 1 ? work.claim_warm_window(most)
                                     : work.claim_cold(most);
      if (!piece) {
        return;
      }
      mistakes += piece->size > most ? 1 : 0;
      for (const std::uint64_t at : {piece->offset, piece->end() - 1}) {
        const bool warm = at / stride % 2 == 0;
        mistakes += warm == (kind == 2) ? 1 : 0;
      }
      const std::lock_guard lock(mutex);
      mistakes += claimed.overlaps(*piece) ? 1 : 0;
      claimed.insert(*piece);
      claimed_bytes += piece->size;
    }
  };
  std::vector<std::thread> threads;
  for (const int kind : {0, 0, 1, 1, 2, 2}) {
    threads.emplace_back(claimer, kind);
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(mistakes, 0);
  EXPECT_EQ(claimed_bytes, extent.size);
  EXPECT_TRUE(claimed.missing_from(extent).empty());
}

TEST(WorkMap, threads_claim_every_byte_once) {
  std::mt19937_64 random(7);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Range extent{random() % (100 * mebibyte), 1 + random() % (600 * mebibyte)};
    const std::uint64_t stride = 4096 * (1 + random() % 40000);
    claim_by_threads(extent, stride, round);
  }
}

}  // namespace
}  // namespace hippogriff
