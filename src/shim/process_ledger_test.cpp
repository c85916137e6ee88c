// The limit of one process.
#include "shim/process_ledger.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace {

using hippogriff::shim::Ledger;
using hippogriff::shim::Patience;
using hippogriff::shim::ProcessLedger;

TEST(ProcessLedger, takes_up_to_the_limit_and_not_a_byte_more) {
  ProcessLedger books(100, 0);
  EXPECT_TRUE(books.take(0, 60, Patience::none));
  EXPECT_FALSE(books.take(0, 41, Patience::may_wait));
  EXPECT_TRUE(books.take(0, 40, Patience::none));
  EXPECT_FALSE(books.take(0, UINT64_MAX, Patience::none));
  EXPECT_TRUE(books.take(1, 100, Patience::none));
  EXPECT_EQ(books.used_bytes(0), 100U);
  books.give(0, 60);
  EXPECT_EQ(books.used_bytes(0), 40U);
}

TEST(ProcessLedger, without_a_limit_it_only_counts) {
  ProcessLedger books(Ledger::unlimited, 7);
  EXPECT_TRUE(books.take(3, std::uint64_t{1} << 60U, Patience::none));
  EXPECT_EQ(books.used_bytes(3), std::uint64_t{1} << 60U);
  EXPECT_EQ(books.size_bytes(3), Ledger::unlimited);
  EXPECT_EQ(books.context_bytes(3), 7U);
}

TEST(ProcessLedger, devices_beyond_its_books_get_nothing_of_a_limit) {
  ProcessLedger limited(100, 0);
  EXPECT_FALSE(limited.take(-1, 1, Patience::none));
  EXPECT_FALSE(limited.take(ProcessLedger::devices_max, 1, Patience::none));
  EXPECT_TRUE(limited.take(ProcessLedger::devices_max - 1, 1, Patience::none));
  ProcessLedger unlimited(Ledger::unlimited, 0);
  EXPECT_TRUE(unlimited.take(-1, 1, Patience::none));
}

void take_and_give(ProcessLedger& books) {
  for (int round = 0; round < 20000; ++round) {
    if (books.take(0, 4, Patience::none)) {
      EXPECT_LE(books.used_bytes(0), 10U);
      books.give(0, 4);
    }
  }
}

TEST(ProcessLedger, threads_never_have_more_than_the_limit) {
  ProcessLedger books(10, 0);
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&books] { take_and_give(books); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(books.used_bytes(0), 0U);
}

TEST(ProcessLedger, the_child_of_a_fork_begins_anew) {
  ProcessLedger books(100, 0);
  EXPECT_TRUE(books.take(0, 100, Patience::none));
  books.forked();
  EXPECT_EQ(books.used_bytes(0), 0U);
}

}  // namespace
