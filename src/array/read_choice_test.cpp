// When rows are read past the cache, and that the way that is taken is never predicted the slower.
#include "array/read_choice.hpp"

#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

ReadFacts memory_facts(std::uint32_t line_bytes, std::uint64_t cache_part) {
  return {.size_bytes = 64 * gib, .cache_bytes = 64 * gib / cache_part, .line_bytes = line_bytes};
}

ReadFacts file_facts(std::uint64_t size_bytes, std::uint32_t threads) {
  return {.size_bytes = size_bytes,
          .cache_bytes = size_bytes / 64,
          .line_bytes = 512,
          .unregistered_bytes = size_bytes,
          .copying_threads = threads};
}

TEST(ReadChoice, of_memory_in_short_lines_is_past_a_cache_of_little_of_it) {
  EXPECT_TRUE(choose_reads(memory_facts(512, 16)).zero_copy);
  EXPECT_FALSE(choose_reads(memory_facts(512, 4)).zero_copy);
  EXPECT_TRUE(choose_reads(memory_facts(1024, 64)).zero_copy);
  EXPECT_FALSE(choose_reads(memory_facts(1024, 8)).zero_copy);
  for (const std::uint32_t line : {4096U, 8192U, 65'536U, 1U << 20U}) {
    EXPECT_FALSE(choose_reads(memory_facts(line, 1'000'000)).zero_copy) << line;
  }
}

TEST(ReadChoice, of_a_file_counts_registering_and_copying_until_then) {
  EXPECT_TRUE(choose_reads(file_facts(gib, 1)).zero_copy);
  EXPECT_FALSE(choose_reads(file_facts(gib, 8)).zero_copy) << "which are through sooner";
  const ReadChoice long_one = choose_reads(file_facts(2 * gib, 1));
  EXPECT_FALSE(long_one.zero_copy) << "who opens it would wait";
  EXPECT_NE(long_one.why.find("registering its pages would take about 0.13 s"), std::string::npos)
      << long_one.why;
  ASSERT_TRUE(long_one.seconds.has_value());
  EXPECT_LT(long_one.seconds->zero_copy, long_one.seconds->cache);
}

TEST(ReadChoice, is_the_cache_where_zero_copy_cannot_be_and_says_why) {
  const ReadFacts good = memory_facts(512, 64);
  ASSERT_TRUE(choose_reads(good).zero_copy);
  const auto refused = [&](auto spoil) {
    ReadFacts facts = good;
    spoil(facts);
    const ReadChoice choice = choose_reads(facts);
    EXPECT_FALSE(choice.zero_copy);
    EXPECT_FALSE(choice.seconds.has_value());
    return choice.why;
  };
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.on_gpu = false; }),
            "threads of the host copy lines, whichever way they come");
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.loaded = true; }),
            "all of it was loaded into the cache");
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.kind = LoadKind::none; }),
            "the cache was asked for by load");
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.changes = true; }),
            "what is written to the array is in the cache first");
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.is_direct = true; }),
            "it is read past the page cache");
  EXPECT_EQ(refused([](ReadFacts& facts) { facts.can_be_read = false; }),
            "it is not whole in host memory that the device can read");
}

TEST(ReadChoice, predicts_for_whole_lines_what_was_measured) {
  ReadFacts facts = memory_facts(512, 1'000'000);
  const double reads = 64.0 * gib / 512;
  EXPECT_NEAR(read_seconds(facts).zero_copy, reads / 48.0e6, 1e-3);
  EXPECT_NEAR(read_seconds(facts).cache,
              (1 - reuse_assumed) * reads / 38.4e6 + reuse_assumed * 64 * gib / 0.353e12,
              1e-3);
  EXPECT_EQ(read_seconds(facts).registering, 0);
  facts.cache_bytes = facts.size_bytes;
  EXPECT_NEAR(read_seconds(facts).cache, 64 * gib / 0.353e12, 1e-3) << "every line is a hit";
}

TEST(ReadChoice, is_never_predicted_to_be_slower_than_the_other_way) {
  const std::uint64_t seed = 20'261'127;
  std::mt19937_64 random(seed);
  int past = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    ReadFacts facts{.line_bytes = 512U << random() % 12};
    facts.size_bytes = facts.line_bytes + random() % (std::uint64_t{1} << (10 + random() % 32));
    facts.cache_bytes = facts.line_bytes + facts.size_bytes / (1 + random() % 1000);
    facts.unregistered_bytes = random() % 2 == 0 ? 0 : facts.size_bytes;
    facts.copying_threads = static_cast<std::uint32_t>(random() % 10);
    const ReadChoice choice = choose_reads(facts);
    ASSERT_TRUE(choice.seconds.has_value());
    const ReadSeconds& seconds = *choice.seconds;
    ASSERT_TRUE(std::isfinite(seconds.cache) && seconds.cache > 0) << turn << " of seed " << seed;
    ASSERT_TRUE(std::isfinite(seconds.zero_copy) && seconds.zero_copy > 0) << turn;
    past += choice.zero_copy ? 1 : 0;
    if (choice.zero_copy) {
      ASSERT_LT(seconds.zero_copy, seconds.cache) << turn << " of seed " << seed;
      ASSERT_LT(facts.cache_bytes, facts.size_bytes) << "what fits is found there: " << turn;
    } else if (seconds.registering <= unnoticed_load_seconds) {
      ASSERT_LE(seconds.cache, seconds.zero_copy) << turn << " of seed " << seed;
    }
  }
  EXPECT_GT(past, 100) << "the test has both";
}

TEST(ReadChoice, wants_as_many_hits_as_make_both_ways_equal) {
  for (const std::uint32_t line_bytes : {512U, 1024U, 4096U, 8192U}) {
    const double enough = hits_enough(line_bytes);
    EXPECT_GT(enough, 0) << line_bytes;
    if (enough <= reuse_assumed) {
      continue;
    }
    // An array of so little reuse that the cache's size alone makes the hits.
    ReadFacts facts;
    facts.line_bytes = line_bytes;
    facts.size_bytes = std::uint64_t{1} << 30;
    facts.cache_bytes = static_cast<std::uint64_t>(static_cast<double>(facts.size_bytes) *
                                                   (enough - reuse_assumed) / (1 - reuse_assumed));
    EXPECT_NEAR(read_seconds(facts).cache / read_seconds(facts).zero_copy, 1, 1e-6);
  }
  EXPECT_NEAR(hits_enough(512), 0.21, 0.01);
  EXPECT_EQ(hits_enough(1 << 16), 0);
}

TEST(ReadChoice, of_the_host_is_told_by_the_array) {
  TestArray array({.writable = false});
  choose_reads_at_opening(array.array(), LoadKind::automatic, 1);
  EXPECT_EQ(array.array().row_reads().past, nullptr);
  EXPECT_EQ(array.array().row_reads().why,
            "threads of the host copy lines, whichever way they come");
}

}  // namespace
}  // namespace hippogriff::ondemand
