// What is foreseen of gathers, and what reading all around costs and saves by it.
#include "array/read_forecast.hpp"

#include "array/read_around.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t block_pages = 32;
constexpr std::size_t blocks = 16384;  // 2 GiB
constexpr std::uint64_t pages = blocks * block_pages;

using Rows = std::vector<std::uint64_t>;  // their pages

Rows uniform(std::size_t count, std::uint64_t from = 0, std::uint64_t to = pages) {
  std::mt19937_64 random(count);
  std::uniform_int_distribution<std::uint64_t> any(from, to - 1);
  Rows rows(count);
  std::ranges::generate(rows, [&] { return any(random); });
  return rows;
}

Rows sorted(Rows rows) {
  std::ranges::sort(rows);
  return rows;
}

// As a GPU reads them: so many at a time, in no order.
Rows shaken(Rows rows) {
  constexpr std::ptrdiff_t at_once = 8192;
  std::mt19937_64 random(1);
  for (auto begin = rows.begin(); begin != rows.end();) {
    const auto end = begin + std::min(at_once, rows.end() - begin);
    std::shuffle(begin, end, random);
    begin = end;
  }
  return rows;
}

// Of the same rows again and again, each in a block of its own.
Rows few(std::size_t count) {
  Rows rows = uniform(count, 0, 1000);
  for (std::uint64_t& row : rows) {
    row = row * 7919 % blocks * block_pages + row % block_pages;
  }
  return rows;
}

// One of each block, and no second one.
Rows one_each() {
  Rows rows(blocks);
  std::iota(rows.begin(), rows.end(), 0);
  std::ranges::shuffle(rows, std::mt19937_64(1));
  for (std::uint64_t& row : rows) {
    row = row * block_pages + row % block_pages;
  }
  return rows;
}

// The nth of the pages is wanted about 1/n times as often as the first one; they lie anywhere.
Rows skewed(std::size_t count) {
  std::mt19937_64 random(count);
  std::uniform_real_distribution<double> share(0, 1);
  Rows rows(count);
  for (std::uint64_t& row : rows) {
    const auto rank =
        static_cast<std::uint64_t>(std::pow(static_cast<double>(pages), share(random)));
    row = rank * 0x9E3779B97F4A7C15 % pages;
  }
  return rows;
}

// Reads of a drive that gives a page in 11 us and a block in 65, as those of the H100 machine; what
// was read stays in the page cache.
double seconds_of(const Rows& rows, bool told) {
  constexpr double page_seconds = 11e-6;
  constexpr double block_seconds = 65e-6;
  ReadAround around(1, pages * page);
  std::vector<bool> cached(pages);
  std::uint64_t reads = 0;
  double seconds = 0;
  if (told) {
    around.forecast().begin(rows.size(), reads);
  }
  for (const std::uint64_t row : rows) {
    if (!cached[row]) {
      if (const auto block = around.note(0, {row * page, page}, reads)) {
        std::fill_n(cached.begin() + static_cast<std::ptrdiff_t>(block->offset / page),
                    block->size / page,
                    true);
        seconds += block_seconds;
      } else {
        cached[row] = true;
        seconds += page_seconds;
      }
    }
    ++reads;
  }
  return seconds;
}

double gain(const Rows& rows) {
  return seconds_of(rows, false) / seconds_of(rows, true);
}

constexpr double file_seconds = blocks * 65e-6;

TEST(ReadForecast, has_a_gather_of_rows_all_over_a_file_read_it_in_order) {
  EXPECT_LT(seconds_of(uniform(pages), true), 1.25 * file_seconds);
  EXPECT_GT(seconds_of(uniform(pages), false), 1.4 * file_seconds);
}

TEST(ReadForecast, sees_that_rows_are_in_a_part) {
  EXPECT_GT(gain(uniform(pages / 4, pages / 8, 3 * pages / 8)), 1.1);
}

TEST(ReadForecast, costs_next_to_nothing_where_it_is_of_no_use) {
  const std::vector<std::pair<const char*, Rows>> cases{
      {"a few rows of each block", uniform(2 * blocks)},
      {"as many as a block is worth", uniform(6 * blocks)},
      {"one of each block", one_each()},
      {"a few rows in order", sorted(uniform(2 * blocks))},
      {"many rows in order", sorted(uniform(pages))},
      {"the same rows again and again", few(pages)},
      {"some rows more than others", skewed(pages / 2)},
      {"a short gather", uniform(1000)},
  };
  for (const auto& [name, rows] : cases) {
    EXPECT_GT(gain(rows), 0.9) << name;
  }
}

// Of gathers so short that a quarter of one is under way at once, which looks like rows all over.
TEST(ReadForecast, costs_little_of_rows_in_order_that_are_read_in_none) {
  EXPECT_GT(gain(shaken(sorted(uniform(2 * blocks)))), 0.8);
  EXPECT_GT(gain(shaken(sorted(uniform(4 * blocks)))), 0.85);
  EXPECT_GE(gain(shaken(sorted(uniform(16 * blocks)))), 1);
}

// What blocks get that are read for the first time, by a gather that has read `read` of `count`.
double foreseen(ReadForecast& forecast, const Rows& rows, std::size_t read) {
  for (std::uint64_t reads = 0; reads < read; ++reads) {
    static_cast<void>(forecast.note(rows[reads] / block_pages, reads));
  }
  double most = 0;
  for (std::size_t block = 0; block < 2; ++block) {  // of which one at most is of the sample
    most = std::max(most, forecast.note(block, read));
  }
  return most;
}

TEST(ReadForecast, is_about_right) {
  const Rows rows = uniform(16 * blocks);
  ReadForecast forecast(blocks);
  forecast.begin(rows.size(), 0);
  EXPECT_NEAR(foreseen(forecast, rows, rows.size() / 8), 14, 3);
}

TEST(ReadForecast, knows_nothing_of_the_next_gather_and_without_one) {
  const Rows rows = uniform(16 * blocks);
  ReadForecast forecast(blocks);
  EXPECT_EQ(foreseen(forecast, rows, rows.size() / 8), 0) << "none has begun";
  forecast.begin(rows.size(), 0);
  EXPECT_GT(foreseen(forecast, rows, rows.size() / 8), 1);
  EXPECT_EQ(forecast.note(0, rows.size()) + forecast.note(1, rows.size()), 0) << "it is over";
  forecast.begin(rows.size(), rows.size());
  EXPECT_EQ(forecast.note(0, rows.size()) + forecast.note(1, rows.size()), 0);
}

TEST(ReadForecast, of_a_gather_outlives_a_short_one_and_ends_when_told) {
  const Rows rows = uniform(16 * blocks);
  ReadForecast forecast(blocks);
  forecast.begin(rows.size(), 0);
  const std::size_t read = rows.size() / 8;
  EXPECT_GT(foreseen(forecast, rows, read), 1);
  const auto now = [&] { return std::max(forecast.note(0, read), forecast.note(1, read)); };
  const double before = now();
  forecast.begin(10, read);
  forecast.begin(0, read);
  EXPECT_EQ(now(), before);
  EXPECT_TRUE(forecast.is_told());
  forecast.end();
  EXPECT_FALSE(forecast.is_told());
  EXPECT_EQ(now(), 0);
}

TEST(ReadForecast, is_of_many_threads) {
  const Rows rows = uniform(8 * blocks);
  ReadForecast forecast(blocks);
  forecast.begin(rows.size(), 0);
  std::vector<std::jthread> threads;
  for (std::size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (std::size_t row = first; row < rows.size(); row += 4) {
        const double more = forecast.note(rows[row] / block_pages, row);
        EXPECT_TRUE(more >= 0 && std::isfinite(more)) << more;
        if (row % (2 * blocks) == 3) {
          forecast.begin(rows.size(), row);
        }
      }
    });
  }
}

}  // namespace
}  // namespace hippogriff::ondemand
