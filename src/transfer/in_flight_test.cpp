// Overlaps, and the end.
#include "transfer/in_flight.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

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

}  // namespace
}  // namespace hippogriff
