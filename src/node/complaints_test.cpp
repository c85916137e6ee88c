// How many lines there are, however many complaints.
#include "node/complaints.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace hippogriff::node {
namespace {

using std::chrono::milliseconds;

TEST(Complaints, are_few_at_first_and_then_one_in_a_while_that_counts_the_others) {
  const char* why = "not free";
  Complaints complaints;
  Complaints::Clock::time_point now{};
  for (std::uint64_t line = 0; line < Complaints::first_max; ++line) {
    EXPECT_EQ(complaints.count(why, now), 0U);
  }
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(complaints.count(why, now), std::nullopt);
    EXPECT_EQ(complaints.count(why, now + Complaints::interval - milliseconds(1)), std::nullopt);
    now += Complaints::interval;
    EXPECT_EQ(complaints.count(why, now), 2U);
  }
  EXPECT_EQ(complaints.count(why, now + Complaints::interval), 0U);
}

// Says all that it may of a reason.
void exhaust(Complaints& complaints, const char* why, Complaints::Clock::time_point now) {
  while (complaints.count(why, now)) {
  }
}

TEST(Complaints, of_another_reason_are_said_among_many_of_one) {
  Complaints complaints;
  const Complaints::Clock::time_point now{};
  exhaust(complaints, "not free", now);
  EXPECT_EQ(complaints.count("the segment is damaged", now), 0U);
  EXPECT_EQ(complaints.count("not free", now), std::nullopt);
  EXPECT_EQ(complaints.count("not free", now + Complaints::interval), 2U);
}

TEST(Complaints, that_differ_in_numbers_are_of_one_reason) {
  Complaints complaints;
  const Complaints::Clock::time_point now{};
  exhaust(complaints, "grow gpu0: 1.50 GiB asked, not free now", now);
  EXPECT_EQ(complaints.count("grow gpu0: 900 B asked, not free now", now), std::nullopt);
  EXPECT_EQ(complaints.count("grow gpu1: 900 B asked, not free now", now), 0U);
}

TEST(Complaints, of_more_reasons_than_are_told_apart_are_said) {
  Complaints complaints;
  Complaints::Clock::time_point now{};
  for (std::size_t number = 0; number < 2 * Complaints::kinds_max; ++number) {
    EXPECT_EQ(complaints.count(std::string(number + 1, 'x').c_str(), ++now), 0U);
  }
}

}  // namespace
}  // namespace hippogriff::node
