// Elements read without a reference, while their places become other lines'.
#include "testing/array_fixture.hpp"
#include "testing/effort.hpp"

#include <hippogriff/array/warp.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <span>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

struct Twelve {
  std::array<std::uint32_t, 3> words;
};

struct Sixteen {
  std::array<std::uint64_t, 2> words;
};

// As view[i] of a kernel does it; whether the first way was enough.
template <typename T>
bool read_element(const Cache& cache, std::uint64_t index, T& value) {
  const std::uint64_t offset = index * sizeof(T);
  if ((offset + sizeof(T) - 1) / usual_line_bytes != offset / usual_line_bytes) {
    EXPECT_EQ(
        read_bytes(cache, Alone{}, offset, sizeof(T), reinterpret_cast<unsigned char*>(&value)),
        NvmeStatus::success);
    return false;
  }
  if (peek(cache, offset, value)) {
    return true;
  }
  EXPECT_EQ(access_together<false>(cache, Lanes(1), offset, value), NvmeStatus::success);
  return false;
}

template <typename T>
class Elements : public ::testing::Test {};

using Types = ::testing::Types<std::uint8_t, std::uint16_t, float, std::uint64_t, Twelve, Sixteen>;
TYPED_TEST_SUITE(Elements, Types);

template <typename T>
bool is_stored(const T& value, const std::vector<std::byte>& stored, std::uint64_t index) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  return std::ranges::equal(bytes, std::span(stored).subspan(index * sizeof value, sizeof value));
}

// The number of wrong values that some threads read, half of them near each other.
template <typename T>
int wrong_reads(const TestArrayOptions& options) {
  TestArray under_test(options);
  const Cache& cache = under_test.array().cache();
  const std::vector<std::byte> stored = under_test.stored();
  const std::uint64_t count = cache.size_bytes / sizeof(T);
  for (std::uint32_t set = 0; set < cache.places.set_count; ++set) {
    cache.places.sets[set].hand = ~std::uint32_t{0} << 9U;  // the numbers begin anew soon
  }
  std::atomic<int> wrong{0};
  std::vector<std::jthread> threads;
  for (unsigned thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937_64 random(thread + 1);
      for (int round = 0; round < rounds_of(4000); ++round) {
        const std::uint64_t index = round % 2 == 0 ? random() % count : random() % 40;
        T value{};
        read_element(cache, index, value);
        wrong += is_stored(value, stored, index) ? 0 : 1;
      }
    });
  }
  threads.clear();
  return wrong.load();
}

TYPED_TEST(Elements, are_those_of_the_file_however_fast_places_change_hands) {
  if (thread_sanitized) {
    GTEST_SKIP() << "what is read may be written meanwhile: the second look at the key finds out";
  }
  for (const std::uint64_t lines : {1U, 3U, 8U, 24U}) {
    const std::uint64_t cache_bytes = lines * usual_line_bytes;
    EXPECT_EQ(wrong_reads<TypeParam>({.cache_bytes = cache_bytes}), 0) << lines;
    EXPECT_EQ(wrong_reads<TypeParam>({.cache_bytes = cache_bytes, .staged = true}), 0) << lines;
  }
}

TYPED_TEST(Elements, are_read_the_short_way_once_their_line_was_held) {
  TestArray under_test({.cache_bytes = 16 * usual_line_bytes});
  const Cache& cache = under_test.array().cache();
  const std::vector<std::byte> stored = under_test.stored();
  TypeParam value{};
  EXPECT_FALSE(read_element(cache, 1, value)) << "nothing is there";
  EXPECT_TRUE(read_element(cache, 1, value));
  EXPECT_TRUE(is_stored(value, stored, 1));
  EXPECT_TRUE(read_element(cache, 2, value)) << "of the same line";
  EXPECT_TRUE(is_stored(value, stored, 2));
}

TEST(Peek, sees_what_was_written_and_not_what_a_place_had_before) {
  TestArray under_test({.cache_bytes = usual_line_bytes});  // one place
  const Cache& cache = under_test.array().cache();
  const std::vector<std::byte> stored = under_test.stored();
  std::uint64_t value = 0;
  static_cast<void>(read_element(cache, 0, value));
  std::uint64_t written = value + 1;
  ASSERT_EQ(access_together<true>(cache, Lanes(1), 0, written), NvmeStatus::success);
  ASSERT_TRUE(peek(cache, 0, value));
  EXPECT_EQ(value, written);
  std::uint64_t other = 0;
  static_cast<void>(
      read_element(cache, usual_line_bytes / 8, other));  // the place is another line's
  EXPECT_EQ(std::memcmp(&other, &stored[usual_line_bytes], sizeof other), 0);
  EXPECT_FALSE(peek(cache, 0, value));
  static_cast<void>(read_element(cache, 0, value));
  EXPECT_EQ(value, written);
}

TEST(Peek, refuses_a_line_that_is_overwritten_as_a_whole_until_somebody_has_held_it) {
  TestArray under_test({.cache_bytes = usual_line_bytes});
  const Cache& cache = under_test.array().cache();
  std::uint64_t value = 0;
  static_cast<void>(read_element(cache, 0, value));
  const Held held = cache.hold(Alone{}, 1, Intent::overwrite);
  ASSERT_EQ(held.status, NvmeStatus::success);
  EXPECT_FALSE(peek(cache, 0, value));
  EXPECT_FALSE(peek(cache, usual_line_bytes, value)) << "its bytes are still somebody's alone";
  std::memset(cache.bytes_of(held.place), 7, usual_line_bytes);
  static_cast<void>(cache.drop(Alone{}, held, true));
  EXPECT_FALSE(read_element(cache, usual_line_bytes / 8, value));
  EXPECT_EQ(value, 0x0707070707070707U);
  EXPECT_TRUE(peek(cache, usual_line_bytes + 8, value));
}

TEST(Peek, marks_what_it_reads_as_used) {
  TestArray under_test({.cache_bytes = 8 * usual_line_bytes});
  const Cache& cache = under_test.array().cache();
  std::uint64_t value = 0;
  static_cast<void>(read_element(cache, 0, value));
  std::uint32_t place = 0;
  ASSERT_TRUE(cache.places.try_hold(0, place));
  cache.places.drop(place, false);
  cache.places.words[place] &= ~PlaceWord::used;
  ASSERT_TRUE(peek(cache, 0, value));
  EXPECT_NE(cache.places.words[place] & PlaceWord::used, 0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
