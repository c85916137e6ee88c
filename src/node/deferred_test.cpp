// Reservations that are left for their first use: who of a group takes them, when, and what becomes
// of them when processes die.
#include "base/error.hpp"
#include "node/account.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

std::size_t deferred(Node& node) {
  const NodeView view = node.view();
  return static_cast<std::size_t>(std::ranges::count_if(
      view.reservations,
      [](const NodeView::Reservation& reservation) { return reservation.record.deferred != 0; }));
}

// The slot and 1 of who asked for the one claim that waits.
std::uint32_t asker(Node& node) {
  const NodeView view = node.view();
  const auto at =
      std::ranges::find_if(view.reservations, [](const auto& it) { return it.record.grower != 0; });
  return at != view.reservations.end() ? at->record.grower : 0;
}

// A leader that left 60 of 100 for their first use, and somebody else.
class DeferredTest : public ::testing::Test {
 protected:
  void SetUp() override { start(Policy::fifo); }

  void start(Policy policy) {
    leading = std::make_unique<Node>(place.options(policy));
    device = leading->add_device("gpu", 100);
    left = leading->defer(request(60));
    other = std::make_unique<Node>(place.options(policy));
    other->add_device("gpu", 100);
    other->set_policy(policy, {});
  }

  [[nodiscard]] NodeOptions following() const {
    NodeOptions options = place.options();
    options.leader = Leader::parse(leading->leader());
    return options;
  }

  // A process that claims, waiting for as long as it takes, and then stays.
  [[nodiscard]] Child claiming_child() const {
    const NodeOptions options = following();
    return Child([&options] {
      Node node(options);
      node.claim_deferred(node.add_device("gpu", 100), long_wait);
      ::pause();
      return 0;
    });
  }

  TemporarySegment place;
  std::unique_ptr<Node> leading;
  std::unique_ptr<Node> other;
  std::uint32_t device = 0;
  std::uint64_t left = 0;
};

// A process of the leader's command.
struct Member {
  explicit Member(const NodeOptions& options)
      : node(options), device(node.add_device("gpu", 100)), account(node, device) {}

  void claim(milliseconds timeout) { account.claim(timeout); }

  Node node;
  std::uint32_t device;
  Account account;
};

TEST_F(DeferredTest, holds_nothing_and_waits_for_nothing_until_it_is_claimed) {
  EXPECT_EQ(held(*other), 0U);
  EXPECT_EQ(waiting(*other), 0U);
  EXPECT_EQ(deferred(*other), 1U);
  other->release(other->reserve(request(100)));
  Member member(following());
  EXPECT_TRUE(member.account.follows());
  EXPECT_FALSE(member.account.is_claimed());
  EXPECT_EQ(member.account.limit_bytes(), 60U);
  EXPECT_FALSE(member.account.take(1));
  EXPECT_EQ(deferred(*other), 1U) << "taking alone claims nothing";
}

TEST_F(DeferredTest, is_taken_whole_by_the_first_and_shared_by_all_who_follow) {
  Member first(following());
  Member second(following());
  first.claim(no_wait);
  EXPECT_EQ(held(*other), 60U);
  EXPECT_EQ(deferred(*other), 0U);
  EXPECT_TRUE(first.account.take(20));
  second.claim(no_wait);
  EXPECT_TRUE(second.account.take(40));
  EXPECT_FALSE(second.account.take(1));
  first.account.give(20);
  second.account.give(40);
  EXPECT_EQ(held(*other), 60U) << "it stays";
  Member later(following());
  EXPECT_TRUE(later.account.take(60));
  leading->release(left);
  EXPECT_EQ(held(*other), 0U);
}

TEST_F(DeferredTest, keeps_what_a_context_takes_before_it_is_claimed) {
  other->set_unreserved(0, {.context_bytes = 10});
  EXPECT_EQ(status_of([&] { other->reserve(request(91)); }), Status::busy);
  const std::uint64_t rest = other->reserve(request(40));
  Node small(place.options());
  const std::uint64_t least =
      small.defer({.device = small.add_device("gpu", 100), .size_bytes = 5});
  EXPECT_EQ(status_of([&] { other->reserve(request(46)); }), Status::busy);
  other->release(other->reserve(request(45)));
  small.release(least);
  Member member(following());
  member.claim(no_wait);
  EXPECT_EQ(held(*other), 100U) << "its own context is part of it";
  other->release(rest);
}

using Early = std::vector<Unreserved::Early>;

TEST_F(DeferredTest, keeps_what_it_was_seen_to_use_also_when_another_is_served_first) {
  start(Policy::mmu);
  const std::uint64_t all = other->reserve(request(70));
  Member member(following());
  std::thread claims([&] { member.claim(long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  const NodeView view = other->view();
  const auto wish = std::ranges::find_if(
      view.reservations, [](const auto& reservation) { return reservation.record.waits(); });
  other->set_unreserved(0, {.outside_bytes = 5, .early = Early{{wish->record.id, 10}}});
  EXPECT_EQ(status_of([&] { other->reserve(request(16)); }), Status::busy);
  other->release(other->reserve(request(15)));
  other->set_unreserved(0, {.outside_bytes = 5});
  EXPECT_EQ(status_of([&] { other->reserve(request(16)); }), Status::busy) << "nobody said less";
  other->set_unreserved(0, {.outside_bytes = 5, .early = Early{}});
  other->release(other->reserve(request(25)));
  other->release(all);
  claims.join();
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, waits_behind_those_who_waited_before) {
  const std::uint64_t all = other->reserve(request(100));
  std::uint64_t half = 0;
  std::thread before([&] { half = other->reserve(request(50, long_wait)); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  Member member(following());
  std::thread claims([&] { member.claim(long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 2; }));
  other->shrink(all, 40);  // 60 are free: growth would come first
  before.join();
  EXPECT_EQ(held(*other), 90U);
  EXPECT_EQ(waiting(*other), 1U);
  other->release(half);
  claims.join();
  EXPECT_EQ(held(*other), 100U);
}

TEST_F(DeferredTest, is_not_there_while_one_that_came_before_waits) {
  const std::uint64_t all = other->reserve(request(40));
  std::thread before([&] { other->release(other->reserve(request(70, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  Member member(following());
  EXPECT_EQ(status_of([&] { member.claim(no_wait); }), Status::busy) << "60 are free";
  other->release(all);
  before.join();
}

TEST_F(DeferredTest, has_its_priority) {
  start(Policy::priority_fifo);
  leading->release(left);
  left = leading->defer(request(60, no_wait, 5));
  const std::uint64_t all = other->reserve(request(100));
  std::thread before([&] { other->release(other->reserve(request(50, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  Member member(following());
  std::thread claims([&] { member.claim(long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 2; }));
  other->release(all);
  claims.join();
  EXPECT_TRUE(member.account.take(60));
  leading->release(left);
  before.join();
}

TEST_F(DeferredTest, is_asked_for_once_however_many_wait_for_it) {
  const std::uint64_t all = other->reserve(request(100));
  std::vector<std::unique_ptr<Member>> members;
  std::vector<std::thread> threads;
  std::atomic<int> there{0};
  for (int count = 0; count < 3; ++count) {
    members.push_back(std::make_unique<Member>(following()));
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&there, &member = *members.back()] {
        member.claim(long_wait);
        there += member.account.take(10) ? 1 : 0;
      });
    }
  }
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  EXPECT_EQ(other->view().reservations.size(), 2U);
  other->release(all);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(there, 6);
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, another_of_the_group_asks_when_the_one_that_asked_is_killed) {
  const std::uint64_t all = other->reserve(request(100));
  Child first = claiming_child();
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  const std::uint32_t asked = asker(*other);
  Member second(following());
  std::thread claims([&] { second.claim(long_wait); });
  first.send(SIGKILL);
  first.wait();
  ASSERT_TRUE(eventually([&] {
    const std::uint32_t now = asker(*other);
    return now != 0 && now != asked;
  }));
  other->release(all);
  claims.join();
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, who_waited_for_one_that_was_killed_has_its_place) {
  const std::uint64_t all = other->reserve(request(100));
  Child first = claiming_child();
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  Member second(following());
  std::atomic<int> looks{0};
  std::thread claims([&] {
    second.account.claim(long_wait, [&] {
      ++looks;  // before each look
      return false;
    });
  });
  ASSERT_TRUE(eventually([&] { return looks > 1; }));
  std::uint64_t theirs = 0;
  std::thread newcomer([&] { theirs = other->reserve(request(60, long_wait)); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 2; }));
  const std::uint32_t asked = asker(*other);
  first.send(SIGKILL);
  first.wait();
  ASSERT_TRUE(eventually([&] {
    const std::uint32_t now = asker(*other);
    return now != 0 && now != asked;
  }));
  other->release(all);
  claims.join();
  EXPECT_TRUE(second.account.take(60));
  EXPECT_EQ(waiting(*other), 1U) << "who came later";
  leading->release(left);
  newcomer.join();
  other->release(theirs);
}

TEST_F(DeferredTest, claim_of_a_killed_process_holds_nobody_up_and_can_be_made_again) {
  const std::uint64_t all = other->reserve(request(50));
  Child first = claiming_child();
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  EXPECT_EQ(status_of([&] { other->reserve(request(50)); }), Status::busy);
  first.send(SIGKILL);
  first.wait();
  const std::uint64_t rest = other->reserve(request(50, long_wait));
  EXPECT_EQ(deferred(*other), 1U);
  other->release(rest);
  other->release(all);
  Member member(following());
  member.claim(no_wait);
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, is_there_for_the_others_when_it_was_granted_to_one_that_died) {
  const std::uint64_t all = other->reserve(request(100));
  Child first = claiming_child();
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  Member before(following());
  first.send(SIGSTOP);
  first.wait_stopped();
  other->release(all);
  EXPECT_EQ(held(*other), 60U) << "granted, and asleep";
  first.send(SIGKILL);
  first.wait();
  Member after(following());
  EXPECT_TRUE(after.account.follows());
  EXPECT_TRUE(after.account.take(20));
  before.claim(no_wait);
  EXPECT_TRUE(before.account.take(40));
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, ends_with_the_last_process_of_the_command) {
  Child leads([this] {
    Node theirs(place.options());
    theirs.defer({.device = theirs.add_device("gpu", 100), .size_bytes = 70});
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return deferred(*other) == 2; }));
  leads.send(SIGKILL);
  leads.wait();
  EXPECT_EQ(deferred(*other), 1U);
}

TEST_F(DeferredTest, is_left_again_when_the_wait_was_too_long) {
  const std::uint64_t all = other->reserve(request(100));
  Member member(following());
  EXPECT_EQ(status_of([&] { member.claim(no_wait); }), Status::busy);
  const auto start = std::chrono::steady_clock::now();
  try {
    member.claim(milliseconds(120));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::timed_out);
    EXPECT_EQ(error.failure().object, "gpu");
    EXPECT_NE(error.failure().detail.find("120 ms"), std::string::npos);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - start, milliseconds(120));
  EXPECT_EQ(waiting(*other), 0U);
  EXPECT_EQ(deferred(*other), 1U);
  other->release(all);
  member.claim(no_wait);
  EXPECT_TRUE(member.account.take(60));
}

TEST_F(DeferredTest, wait_for_it_ends_when_it_is_interrupted_or_cancelled) {
  const std::uint64_t all = other->reserve(request(100));
  Member member(following());
  EXPECT_EQ(status_of([&] { member.account.claim(long_wait, [] { return true; }); }),
            Status::cancelled);
  std::thread claims(
      [&] { EXPECT_EQ(status_of([&] { member.claim(long_wait); }), Status::cancelled); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  member.node.cancel_waits();
  claims.join();
  EXPECT_EQ(deferred(*other), 1U);
  other->release(all);
}

TEST_F(DeferredTest, of_two_commands_one_has_the_device_and_then_the_other) {
  Node second(place.options());
  const std::uint64_t theirs =
      second.defer({.device = second.add_device("gpu", 100), .size_bytes = 60});
  NodeOptions options = place.options();
  options.leader = Leader::parse(second.leader());
  Member of_first(following());
  Member of_second(options);
  of_first.claim(no_wait);
  EXPECT_EQ(status_of([&] { of_second.claim(no_wait); }), Status::busy);
  std::thread claims([&] { of_second.claim(long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  leading->release(left);
  claims.join();
  EXPECT_TRUE(of_second.account.take(60));
  EXPECT_FALSE(of_first.account.take(1));
  EXPECT_EQ(status_of([&] { of_first.claim(no_wait); }), Status::out_of_device_memory) << "gone";
  second.release(theirs);
  EXPECT_EQ(held(*other), 0U);
}

TEST_F(DeferredTest, refuses_what_can_never_fit_or_makes_no_sense) {
  EXPECT_EQ(status_of([&] { leading->defer(request(101)); }), Status::out_of_device_memory);
  EXPECT_EQ(status_of([&] { leading->defer(request(0)); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { leading->grow(left, 70, no_wait); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { leading->shrink(left, 10); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { leading->claim_deferred(device, no_wait); }),
            Status::out_of_device_memory)
      << "it is for those who follow";
  leading->release(left);
  Member member(following());
  EXPECT_FALSE(member.account.follows());
  EXPECT_EQ(status_of([&] { member.node.claim_deferred(member.device, no_wait); }),
            Status::out_of_device_memory);
  EXPECT_EQ(status_of([&] { leading->release(left); }), Status::invalid_argument);
}

TEST_F(DeferredTest, is_the_only_one_of_its_device) {
  EXPECT_EQ(status_of([&] { leading->defer(request(10)); }), Status::invalid_argument);
  const std::uint32_t second = leading->add_device("second-gpu", 100);
  leading->release(leading->defer({.device = second, .size_bytes = 10}));
  leading->release(left);
  left = leading->defer(request(10));
  Member member(following());
  EXPECT_EQ(member.account.limit_bytes(), 10U);
  member.claim(no_wait);
  EXPECT_EQ(held(*other), 10U);
}

TEST_F(DeferredTest, is_claimed_by_whoever_of_the_command_reserves) {
  Member member(following());
  EXPECT_EQ(status_of([&] { member.account.reserve(request(61, long_wait)); }),
            Status::out_of_device_memory)
      << "at once: it never fits";
  EXPECT_EQ(deferred(*other), 1U);
  const std::uint64_t all = other->reserve(request(100));
  EXPECT_EQ(status_of([&] { member.account.reserve(request(10)); }), Status::busy);
  std::thread reserves([&] { member.account.reserve(request(10, long_wait)); });
  ASSERT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  other->release(all);
  reserves.join();
  EXPECT_EQ(held(*other), 60U);
  EXPECT_EQ(leading->group_used_bytes(device), 10U);
}

TEST_F(DeferredTest, of_a_command_within_a_command_is_the_outer_ones) {
  Member inner(following());
  EXPECT_EQ(status_of([&] { inner.account.defer(request(61)); }), Status::out_of_device_memory);
  const std::uint64_t handle = inner.account.defer(request(50));
  EXPECT_EQ(inner.account.reserved_bytes(handle), 0U);
  EXPECT_EQ(deferred(*other), 1U);
  inner.claim(no_wait);
  EXPECT_EQ(held(*other), 60U);
  inner.account.release(handle);
  EXPECT_EQ(held(*other), 60U);
}

TEST_F(DeferredTest, grows_like_any_once_it_was_claimed) {
  Member member(following());
  std::string why;
  EXPECT_FALSE(member.account.take_growing(70, no_wait, why));
  EXPECT_EQ(held(*other), 0U);
  member.claim(no_wait);
  EXPECT_TRUE(member.account.take_growing(70, no_wait, why)) << why;
  EXPECT_EQ(held(*other), 70U);
}

TEST_F(DeferredTest, is_left_again_in_the_books_that_replace_a_deleted_segment) {
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  EXPECT_EQ(deferred(*leading), 1U);
  Member member(following());
  member.claim(no_wait);
  EXPECT_EQ(held(*leading), 60U);
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  EXPECT_EQ(held(*leading), 60U) << "and what was claimed stays so";
}

// A process of a command that claims, takes and gives, until its leader has gone.
int work(const NodeOptions& options, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Member member(options);
  Status status = Status::ok;
  while (status != Status::out_of_device_memory) {
    status = status_of([&] { member.claim(milliseconds(random() % 20)); });
    if (status == Status::ok && member.account.take(20)) {
      if (member.node.group_used_bytes(member.device) > 60) {
        return 1;
      }
      member.account.give(20);
    }
    if (!member.account.follows() || !member.node.follows()) {
      break;
    }
  }
  return 0;
}

TEST_F(DeferredTest, random_kills_leak_nothing_and_promise_nothing_twice) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  leading->release(left);

  struct Command {
    std::unique_ptr<Node> leader;
    std::vector<std::unique_ptr<Child>> children{3};
  };

  std::vector<Command> commands(2);
  for (std::uint64_t turn = 0; turn < 300; ++turn) {
    Command& command = commands[random() % commands.size()];
    if (command.leader == nullptr || random() % 16 == 0) {
      command.children = std::vector<std::unique_ptr<Child>>(3);
      command.leader = std::make_unique<Node>(place.options());
      command.leader->add_device("gpu", 100);
      command.leader->defer(request(60));
    }
    NodeOptions options = place.options();
    options.leader = Leader::parse(command.leader->leader());
    auto& child = command.children[random() % command.children.size()];
    child.reset();  // killed
    child = std::make_unique<Child>([&] { return work(options, seed + turn); });
    ::usleep(static_cast<useconds_t>(random() % 3000));
    ASSERT_LE(held(*other), 100U);
    if (turn % 50 == 0) {
      const NodeView view = other->view();
      ASSERT_LE(view.reservations.size(), 2U);
    }
  }
  commands.clear();
  other->release(other->reserve(request(100, long_wait)));
  EXPECT_TRUE(other->view().reservations.empty());
}

}  // namespace
}  // namespace hippogriff::node
