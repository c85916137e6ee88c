// What hosts ask for ahead: the C and C++ functions on device host, and the lines behind them.
#include "array/row_moves.hpp"
#include "testing/array_fixture.hpp"
#include "testing/effort.hpp"
#include "testing/eventually.hpp"

#include <hippogriff/array.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {
namespace {

using hippogriff::testing::eventually;

constexpr std::uint64_t size_bytes = 1'000'003;  // the last line is short

class AskedAhead : public ::testing::Test {
 protected:
  void SetUp() override {
    expected_ = pattern(0, size_bytes);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(expected_.data()), size_bytes);
  }

  [[nodiscard]] array<std::byte> open(std::uint64_t cache_size, const char* mode = "r") const {
    return array<std::byte>(path_,
                            {.mode = mode,
                             .device = "host",
                             .cache_size = cache_size,
                             .line_size = 512,
                             .load = "none"});
  }

  // Reads it, and says how many lines were not there.
  [[nodiscard]] std::uint64_t misses_of_reading(const array<std::byte>& opened,
                                                std::uint64_t offset,
                                                std::size_t size) const {
    const std::uint64_t before = opened.statistics().misses;
    std::vector<std::byte> found(size);
    EXPECT_EQ(hippogriff_array_read(opened.get(), offset, found.data(), size), HIPPOGRIFF_OK);
    EXPECT_EQ(std::memcmp(found.data(), &expected_[offset], size), 0);
    return opened.statistics().misses - before;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.file("bytes");
  std::vector<std::byte> expected_;
};

TEST_F(AskedAhead, a_range_is_there_when_it_is_read) {
  for (const char* mode : {"r", "r+", "c"}) {
    const array<std::byte> opened = open(1 << 20, mode);
    opened.prefetch(1000, 50'000);
    EXPECT_EQ(opened.statistics().misses, (50'999 / 512) - (1000 / 512) + 1U);
    EXPECT_EQ(misses_of_reading(opened, 1000, 50'000), 0U);
    opened.prefetch(size_bytes - 1, 1);
    EXPECT_EQ(misses_of_reading(opened, size_bytes - 1, 1), 0U);
    EXPECT_EQ(misses_of_reading(opened, 1000, 50'000), 0U);
    EXPECT_GE(opened.statistics().hits, 98U);
    opened.check_accesses();
  }
}

TEST_F(AskedAhead, rows_are_there_when_they_are_gathered_each_line_read_once) {
  const array<std::byte> opened = open(1 << 20);
  for (const std::uint64_t row_bytes : {64U, 100U, 512U, 777U, 4096U}) {
    const std::vector<std::uint64_t> rows{7, 3, 7, 200, 11, 12, 13, 7};
    const std::uint64_t before = opened.statistics().reads;
    ASSERT_EQ(hippogriff_array_prefetch_rows(opened.get(), rows.data(), rows.size(), row_bytes),
              HIPPOGRIFF_OK);
    const std::uint64_t misses = opened.statistics().misses;
    std::vector<std::byte> found(rows.size() * row_bytes);
    ASSERT_EQ(
        hippogriff_array_gather(opened.get(), rows.data(), rows.size(), row_bytes, found.data()),
        HIPPOGRIFF_OK);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(std::memcmp(&found[i * row_bytes], &expected_[rows[i] * row_bytes], row_bytes), 0);
    }
    EXPECT_EQ(opened.statistics().misses, misses) << row_bytes;
    EXPECT_LE(opened.statistics().reads - before, rows.size() * (row_bytes / 512 + 2));
  }
}

TEST_F(AskedAhead, elements_by_index_and_by_range_are_those_of_the_type) {
  const array<std::uint32_t> numbers(
      path_, {.device = "host", .cache_size = 1 << 20, .line_size = 512, .load = "none"});
  numbers.prefetch(std::vector<std::uint64_t>{0, 128, 129, 249'999});
  EXPECT_EQ(numbers.statistics().misses, 3U);
  numbers.prefetch(1280, 256);
  EXPECT_EQ(numbers.statistics().misses, 5U);
  std::uint32_t value = 0;
  std::memcpy(&value, &expected_[std::size_t{1281} * 4], sizeof value);
  EXPECT_EQ(numbers.view()[1281], value);
  EXPECT_EQ(numbers.statistics().misses, 5U);
  for (const auto& [first, count] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {250'000, 1}, {0, 250'001}, {UINT64_MAX, 1}, {1, UINT64_MAX}, {1, UINT64_MAX / 4}}) {
    EXPECT_THROW(numbers.prefetch(first, count), TransferError) << first << " " << count;
  }
  numbers.prefetch(250'000, 0);
  EXPECT_THROW(numbers.prefetch(std::vector<std::uint64_t>{250'000}), TransferError);
}

TEST_F(AskedAhead, no_more_is_asked_for_than_half_of_the_cache_and_all_can_still_be_read) {
  for (const std::uint64_t lines : {1U, 2U, 16U, 100U}) {
    const array<std::byte> opened = open(lines * 512);
    opened.prefetch(0, size_bytes);
    EXPECT_LE(opened.statistics().misses, lines == 1 ? 1 : lines / 2);
    std::vector<std::uint64_t> rows(5000);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = i * 3 % (size_bytes / 100);
    }
    ASSERT_EQ(hippogriff_array_prefetch_rows(opened.get(), rows.data(), rows.size(), 100),
              HIPPOGRIFF_OK);
    static_cast<void>(misses_of_reading(opened, 0, size_bytes));
    opened.check_accesses();
  }
}

TEST_F(AskedAhead, what_cannot_be_is_refused_and_nothing_is_asked_for) {
  const array<std::byte> opened = open(1 << 20);
  hippogriff_storage_array* const raw = opened.get();
  const std::vector<std::uint64_t> rows{0, size_bytes};
  EXPECT_EQ(hippogriff_array_prefetch(raw, 0, size_bytes + 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch(raw, size_bytes + 1, 0), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch(raw, 1, UINT64_MAX), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch(nullptr, 0, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch_rows(raw, rows.data(), 2, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch_rows(raw, rows.data(), 1, 0), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch_rows(raw, nullptr, 1, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_array_prefetch_rows(nullptr, nullptr, 0, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  hippogriff_device_rows there{};
  there.struct_size = sizeof there;
  EXPECT_EQ(hippogriff_array_prefetch_async(raw, &there), HIPPOGRIFF_UNSUPPORTED);
  EXPECT_EQ(hippogriff_array_prefetch(raw, size_bytes, 0), HIPPOGRIFF_OK);
  EXPECT_EQ(hippogriff_array_prefetch_rows(raw, nullptr, 0, 1), HIPPOGRIFF_OK);
  EXPECT_EQ(opened.statistics().misses, 0U);
  opened.check_accesses();
}

// Every other of eight threads asks for what it likes; the others gather rows at random. How many
// calls failed and rows were wrong.
int use_by_threads(const array<std::byte>& opened, const std::vector<std::byte>& expected) {
  constexpr std::uint64_t row_bytes = 100;
  std::atomic<int> wrong{0};
  hippogriff_storage_array* const raw = opened.get();
  on_threads(8, [&](int thread) {
    std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 5);
    for (int round = 0; round < rounds_of(40); ++round) {
      std::vector<std::uint64_t> rows(1 + random() % 200);
      std::ranges::generate(rows, [&] { return random() % (size_bytes / row_bytes); });
      if (thread % 2 == 0) {
        const std::uint64_t first = random() % size_bytes;
        wrong += hippogriff_array_prefetch(raw, first, random() % (size_bytes - first));
        wrong += hippogriff_array_prefetch_rows(raw, rows.data(), rows.size(), row_bytes);
        continue;
      }
      std::vector<std::byte> found(rows.size() * row_bytes);
      wrong += hippogriff_array_gather(raw, rows.data(), rows.size(), row_bytes, found.data());
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto* const row = &found[i * row_bytes];
        wrong += std::memcmp(row, &expected[rows[i] * row_bytes], row_bytes) == 0 ? 0 : 1;
      }
    }
  });
  return wrong.load();
}

TEST_F(AskedAhead, by_threads_beside_threads_that_gather_all_get_on) {
  for (const std::uint64_t cache_size : {512U, 8192U, 1U << 20U}) {
    const array<std::byte> opened = open(cache_size);
    EXPECT_EQ(use_by_threads(opened, expected_), 0);
    opened.check_accesses();
  }
}

// Rows of a test's array by numbers, as the C functions and kernels make them.
RowMoves rows_of(TestArray& array, const std::vector<std::int64_t>& numbers, std::uint64_t bytes) {
  return {.cache = array.array().cache(),
          .row_bytes = bytes,
          .rows_there = array.array().size_bytes() / bytes,
          .numbers = reinterpret_cast<std::uint64_t>(numbers.data()),
          .count = numbers.size(),
          .numbers_signed = 1};
}

// How often it was asked before there was no slot.
std::uint64_t ask_all(const RowMoves& rows) {
  std::uint64_t asked = 0;
  while (asked < rows.ask_count() && rows.ask(Alone{}, asked)) {
    ++asked;
  }
  return asked;
}

TEST(AskingAhead, waits_for_no_answer_and_for_no_slot) {
  TestArray array({.cache_bytes = std::uint64_t{64} << 10, .queue_depth = 4});
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
  const std::vector<std::int64_t> all{0};
  const RowMoves rows = rows_of(array, all, array.array().size_bytes());
  const std::uint64_t asked = ask_all(rows);
  EXPECT_GE(asked, 3U);
  EXPECT_LT(asked, rows.ask_count());
  EXPECT_EQ(array.array().counts().misses, asked);
  array.plan().release();
  const std::vector<std::byte> expected = array.stored();
  std::vector<unsigned char> found(expected.size());
  EXPECT_EQ(read_bytes(array.array().cache(), Alone{}, 0, found.size(), found.data()),
            NvmeStatus::success);
  EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size()), 0);
  EXPECT_EQ(array.array().served().reads, 128U) << "none was read twice";
}

TEST(AskingAhead, of_numbers_out_of_range_is_told_and_goes_on) {
  TestArray array({});
  const std::vector<std::int64_t> numbers{-1, 128, -129, 5, 0};
  EXPECT_EQ(ask_all(rows_of(array, numbers, 512)), 5U);
  EXPECT_EQ(array.array().counts().misses, 3U);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::invalid_argument);
  EXPECT_TRUE(eventually([&] { return array.array().served().reads == 3; }));
}

TEST(AskingAhead, looks_at_the_lines_of_each_row_and_at_no_more) {
  TestArray array({.cache_bytes = std::uint64_t{1} << 20});
  for (const auto& [bytes, base, lines] :
       std::vector<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>>{{1, 0, 1},
                                                                            {1, 511, 1},
                                                                            {2, 511, 2},
                                                                            {512, 512, 1},
                                                                            {512, 3, 2},
                                                                            {513, 0, 2},
                                                                            {1024, 0, 2},
                                                                            {1024, 1, 3},
                                                                            {1026, 511, 4}}) {
    const RowMoves rows{.cache = array.array().cache(),
                        .base = base,
                        .row_bytes = bytes,
                        .rows_there = 1,
                        .count = 1};
    const std::uint64_t last = (base + bytes - 1) / 512;
    EXPECT_EQ(rows.lines_each(), lines) << bytes << " from " << base;
    const std::uint64_t before = array.array().counts().misses;
    ask_all(rows);
    EXPECT_LE(array.array().counts().misses - before, lines);
    for (std::uint64_t line = base / 512; line <= last; ++line) {
      EXPECT_TRUE(array.array().cache().places.place_with(line) != no_place);
    }
  }
}

TEST(AskingAhead, of_an_array_that_has_ended_returns) {
  TestArray array({});
  array.array().cache().patience.end(Ending::stopped);
  const std::vector<std::int64_t> all{0};
  ask_all(rows_of(array, all, array.array().size_bytes()));
  std::uint32_t value = 0;
  EXPECT_EQ(array.view<std::uint32_t>().read(0, value), NvmeStatus::aborted);
}

}  // namespace
}  // namespace hippogriff::ondemand
