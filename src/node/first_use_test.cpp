// Waits of a process's first use: in the foreground with a caller's clock, and in the background.
#include "node/first_use.hpp"

#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
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
    return {*member, *account, 0, "gpu", timeout};
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
  EXPECT_TRUE(claim.is_there_now());
  EXPECT_TRUE(claim.is_there_now());
  BackgroundClaim::Wish wish(claim);
  EXPECT_TRUE(wish.is_there());
  EXPECT_EQ(held(other), 60U);
}

TEST_F(FirstUseTest, asking_for_it_at_once_waits_for_nothing) {
  const std::uint64_t all = other.reserve(request(100));
  BackgroundClaim claim(first_use(), nullptr);
  EXPECT_FALSE(claim.is_there_now());
  EXPECT_EQ(waiting(other), 0U);
  other.release(all);
}

// What is asked for keeps its ticket as long as it waits.
std::uint64_t ticket_of_wait(Node& node) {
  const NodeView view = node.view();
  const auto at = std::ranges::find_if(
      view.reservations, [](const auto& reservation) { return reservation.record.waits(); });
  return at != view.reservations.end() ? at->record.ticket : 0;
}

TEST_F(FirstUseTest, in_the_background_waits_as_long_as_there_is_a_wish_that_nobody_asks_about) {
  const std::uint64_t all = other.reserve(request(100));
  BackgroundClaim claim(first_use(), nullptr);
  auto wish = std::make_unique<BackgroundClaim::Wish>(claim);
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  const std::uint64_t ticket = ticket_of_wait(other);
  // Longer than any patience with those who do not ask: nothing shall end it.
  const auto until = Clock::now() + milliseconds(1500);
  while (Clock::now() < until) {
    ASSERT_EQ(ticket_of_wait(other), ticket);
    std::this_thread::sleep_for(milliseconds(20));
  }
  {
    BackgroundClaim::Wish another(claim);
    wish.reset();
    EXPECT_FALSE(another.is_there());
    EXPECT_EQ(ticket_of_wait(other), ticket) << "another wants it still";
  }
  EXPECT_TRUE(eventually([&] { return waiting(other) == 0; })) << "nobody wants it any more";
  BackgroundClaim::Wish again(claim);
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  other.release(all);
  EXPECT_TRUE(eventually([&] { return again.is_there(); }));
  EXPECT_EQ(held(other), 60U);
}

TEST_F(FirstUseTest, in_the_background_fails_for_all_who_waited_and_not_for_who_comes_later) {
  const std::uint64_t all = other.reserve(request(100));
  BackgroundClaim claim(first_use(milliseconds(20)), nullptr);
  BackgroundClaim::Wish first(claim);
  BackgroundClaim::Wish second(claim);
  const auto fails = [](BackgroundClaim::Wish& wish) {
    return status_of([&] { static_cast<void>(wish.is_there()); }) == Status::out_of_device_memory;
  };
  EXPECT_TRUE(eventually([&] { return fails(first); }));
  EXPECT_TRUE(fails(first)) << "also when it asks again";
  {
    BackgroundClaim::Wish later(claim);  // before the second has heard of it
    EXPECT_TRUE(eventually([&] { return fails(later); })) << "at its own end";
  }
  EXPECT_TRUE(fails(second));
  other.release(all);
  BackgroundClaim::Wish last(claim);
  EXPECT_TRUE(eventually([&] { return last.is_there(); }));
  EXPECT_TRUE(second.is_there()) << "it is there after all";
}

TEST_F(FirstUseTest, in_the_background_fails_with_what_is_no_error_of_ours) {
  const std::uint64_t all = other.reserve(request(100));
  NodeOptions options = place.options();
  options.leader = Leader::parse(leading.leader());
  std::atomic<bool> armed{false};
  options.steps = {.at =
                       [](void* context, const char* /*place*/) {
                         if (*static_cast<std::atomic<bool>*>(context)) {
                           throw std::bad_alloc();
                         }
                       },
                   .context = &armed};
  Node node(options);
  Account its(node, node.add_device("gpu", 100));
  BackgroundClaim claim({node, its, 0, "gpu", long_wait}, nullptr);
  BackgroundClaim::Wish wish(claim);
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  armed = true;
  EXPECT_TRUE(eventually([&] {
    return status_of([&] { static_cast<void>(wish.is_there()); }) == Status::out_of_host_memory;
  }));
  armed = false;
  other.release(all);
}

TEST_F(FirstUseTest, in_the_background_ends_with_its_object_also_for_many_who_wish) {
  const std::uint64_t all = other.reserve(request(100));
  {
    BackgroundClaim claim(first_use(), nullptr);
    std::atomic<int> there{0};
    const auto ask = [&] {
      for (int turn = 0; turn < 50; ++turn) {
        BackgroundClaim::Wish wish(claim);
        there += wish.is_there() ? 1 : 0;
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
