// How many lines there are, however many complaints.
#include "node/complaints.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

namespace hippogriff::node {
namespace {

using std::chrono::milliseconds;

TEST(Complaints, are_few_at_first_and_then_one_in_a_while_that_counts_the_others) {
  Complaints complaints;
  Complaints::Clock::time_point now{};
  for (std::uint64_t line = 0; line < Complaints::first_max; ++line) {
    EXPECT_EQ(complaints.count(now), 0U);
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(complaints.count(now), std::nullopt);
    EXPECT_EQ(complaints.count(now + Complaints::interval - milliseconds(1)), std::nullopt);
    now += Complaints::interval;
    EXPECT_EQ(complaints.count(now), 2U);
  }
  EXPECT_EQ(complaints.count(now + Complaints::interval), 0U);
}

}  // namespace
}  // namespace hippogriff::node
