// Waits of a process's first use: in the foreground with a caller's clock, and in the background.
#include "node/first_use.hpp"

#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

namespace hippogriff::node {
namespace {

using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A command that left 60 of 100 for their first use, one of its processes, and somebody else.
class FirstUseTest : public ::testing::Test {
 protected:
  FirstUseTest() : leading(place.options()), other(place.options()) {
    leading.defer({.device = leading.add_device("gpu", 100), .size_bytes = 60});
    other.add_device("gpu", 100);
    NodeOptions options = place.options();
    options.leader = Leader::parse(leading.leader());
    member = std::make_unique<Node>(options);
    account = std::make_unique<Account>(*member, member->add_device("gpu", 100));
  }

  [[nodiscard]] FirstUse first_use(milliseconds timeout = long_wait) const {
    return {member.get(), *account, 0, "gpu", timeout};
  }

  TemporarySegment place;
  Node leading;
  Node other;
  std::unique_ptr<Node> member;
  std::unique_ptr<Account> account;
};

TEST_F(FirstUseTest, waits_no_longer_than_the_caller_or_the_command_may) {
  const std::uint64_t all = other.reserve(request(100));
  EXPECT_EQ(status_of([&] { first_use().wait(milliseconds(0), nullptr); }),
            Status::out_of_device_memory);
  EXPECT_EQ(status_of([&] { first_use().wait(milliseconds(20), nullptr); }),
            Status::out_of_device_memory);
  EXPECT_EQ(status_of([&] { first_use(milliseconds(20)).wait(long_wait, nullptr); }),
            Status::out_of_device_memory);
  EXPECT_EQ(status_of([&] { first_use().wait(long_wait, [] { return true; }); }),
            Status::cancelled);
  other.release(all);
  first_use().wait(milliseconds(0), nullptr);
  EXPECT_EQ(held(other), 60U);
}

TEST_F(FirstUseTest, in_the_background_is_there_at_once_where_memory_is_free) {
  BackgroundClaim claim(first_use(), nullptr);
  EXPECT_TRUE(claim.is_there(Clock::now()));
  EXPECT_TRUE(claim.is_there(Clock::now()));
  EXPECT_EQ(held(other), 60U);
}

TEST_F(FirstUseTest, in_the_background_waits_while_somebody_asks) {
  const std::uint64_t all = other.reserve(request(100));
  BackgroundClaim claim(first_use(), nullptr);
  const auto began = Clock::now();
  EXPECT_FALSE(claim.is_there(began));
  ASSERT_TRUE(eventually([&] { return !claim.is_there(began) && waiting(other) == 1; }));
  EXPECT_TRUE(eventually([&] { return waiting(other) == 0; })) << "nobody asks any more";
  EXPECT_FALSE(claim.is_there(began)) << "and again";
  ASSERT_TRUE(eventually([&] { return !claim.is_there(began) && waiting(other) == 1; }));
  other.release(all);
  EXPECT_TRUE(eventually([&] { return claim.is_there(began); }));
  EXPECT_EQ(held(other), 60U);
}

TEST_F(FirstUseTest, in_the_background_fails_for_all_who_waited_and_not_for_who_comes_later) {
  const std::uint64_t all = other.reserve(request(100));
  BackgroundClaim claim(first_use(milliseconds(20)), nullptr);
  const auto began = Clock::now();
  EXPECT_FALSE(claim.is_there(began));
  const auto fails = [&] {
    return status_of([&] { static_cast<void>(claim.is_there(began)); }) ==
           Status::out_of_device_memory;
  };
  EXPECT_TRUE(eventually(fails));
  EXPECT_TRUE(fails()) << "another who waited as long";
  EXPECT_FALSE(claim.is_there(Clock::now()));
  other.release(all);
  const auto later = Clock::now();
  EXPECT_TRUE(eventually([&] {
    bool there = false;
    static_cast<void>(status_of([&] { there = claim.is_there(later); }));
    return there;
  }));
}

TEST_F(FirstUseTest, in_the_background_ends_with_its_object_also_for_many_who_ask) {
  const std::uint64_t all = other.reserve(request(100));
  {
    BackgroundClaim claim(first_use(), nullptr);
    std::atomic<int> there{0};
    const auto ask = [&] {
      for (int turn = 0; turn < 50; ++turn) {
        there += claim.is_there(Clock::now()) ? 1 : 0;
      }
    };
    std::array<std::thread, 4> threads{
        std::thread(ask), std::thread(ask), std::thread(ask), std::thread(ask)};
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(there, 0);
  }
  EXPECT_EQ(waiting(other), 0U);
  other.release(all);
}

}  // namespace
}  // namespace hippogriff::node
