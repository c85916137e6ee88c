// Overlaps, and the end.
#include "transfer/in_flight.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

Status status_of_begin(InFlight& all, std::uint64_t address, std::uint64_t size, MemoryUse use) {
  try {
    const InFlight::Use one(all, {address}, size, use);
    return Status::ok;
  } catch (const Error& error) {
    return error.failure().status;
  }
}

TEST(InFlight, refuses_overlaps_of_which_one_writes) {
  InFlight all;
  const InFlight::Use reads(all, {1000}, 100, MemoryUse::reads);
  EXPECT_EQ(status_of_begin(all, 1099, 10, MemoryUse::reads), Status::ok);
  EXPECT_EQ(status_of_begin(all, 1099, 10, MemoryUse::writes), Status::busy);
  EXPECT_EQ(status_of_begin(all, 990, 11, MemoryUse::writes), Status::busy);
  EXPECT_EQ(status_of_begin(all, 1100, 10, MemoryUse::writes), Status::ok);
  EXPECT_TRUE(all.uses({1050}, 1));
  EXPECT_FALSE(all.uses({1100}, 1));
}

TEST(InFlight, closed_lets_nothing_begin_and_what_is_under_way_end) {
  InFlight all;
  std::optional<InFlight::Use> use;
  use.emplace(all, DeviceAddress{1000}, 100, MemoryUse::writes);
  all.close();
  EXPECT_EQ(status_of_begin(all, 5000, 10, MemoryUse::reads), Status::not_initialized);
  EXPECT_FALSE(all.wait_empty(Clock::now() + milliseconds(10)));
  std::thread ends([&use] {
    std::this_thread::sleep_for(milliseconds(20));
    use.reset();
  });
  EXPECT_TRUE(all.wait_empty(Clock::now() + std::chrono::seconds(60)));
  ends.join();
}

TEST(InFlight, ranges_read_together_are_each_in_use_and_what_is_between_them_is_not) {
  InFlight all;
  {
    const InFlight::Reads reads(
        all, {{5000, 100}, {1000, 100}, {1100, 50}, {1020, 10}, {3000, 0}, {9000, 1}});
    for (const std::uint64_t address : {991U, 1000U, 1099U, 1100U, 1149U, 4991U, 5099U, 9000U}) {
      EXPECT_EQ(status_of_begin(all, address, 10, MemoryUse::writes), Status::busy) << address;
      EXPECT_EQ(status_of_begin(all, address, 10, MemoryUse::reads), Status::ok) << address;
      EXPECT_TRUE(all.uses({address}, 10)) << address;
    }
    for (const std::uint64_t address : {990U, 1150U, 2995U, 3000U, 4990U, 5100U, 8990U, 9001U}) {
      EXPECT_EQ(status_of_begin(all, address, 10, MemoryUse::writes), Status::ok) << address;
      EXPECT_FALSE(all.uses({address}, 10)) << address;
    }
    EXPECT_FALSE(all.wait_empty(Clock::now()));
  }
  EXPECT_EQ(status_of_begin(all, 1000, 9000, MemoryUse::writes), Status::ok);
  EXPECT_TRUE(all.wait_empty(Clock::now()));
}

TEST(InFlight, ranges_read_together_begin_all_or_none) {
  InFlight all;
  {
    const InFlight::Use writes(all, {2000}, 100, MemoryUse::writes);
    EXPECT_THROW(all.begin_reads({{1000, 100}, {2099, 1}}), Error);
    EXPECT_EQ(status_of_begin(all, 1000, 100, MemoryUse::writes), Status::ok);
    all.end_reads(all.begin_reads({{1000, 1000}, {2100, 1}}));
  }
  all.close();
  EXPECT_THROW(all.begin_reads({{1000, 100}}), Error);
  EXPECT_TRUE(all.wait_empty(Clock::now()));
}

// Against a list that is looked through, for writes beside single and gathered reads.
TEST(InFlight, agrees_with_a_list_of_all_that_is_in_flight) {
  std::mt19937_64 random(7);
  const auto range = [&random] { return Range{random() % 300, 1 + random() % 12}; };
  for (int round = 0; round < 2000; ++round) {
    InFlight all;
    std::vector<Range> read(random() % 6);
    std::ranges::generate(read, range);
    const InFlight::Reads together(all, read);
    const Range one = range();
    const InFlight::Use reads(all, {one.offset}, one.size, MemoryUse::reads);
    const Range asked = range();
    bool busy = asked.overlaps(one);
    for (const Range& each : read) {
      busy |= asked.overlaps(each);
    }
    EXPECT_EQ(status_of_begin(all, asked.offset, asked.size, MemoryUse::writes) == Status::busy,
              busy)
        << "round " << round;
  }
}

}  // namespace
}  // namespace hippogriff
