// The suite of the node over shared memory, and what only that has: segments that are deleted,
// damaged, locked.
#include "node/node.hpp"

#include "base/error.hpp"
#include "node/account.hpp"
#include "node/layout.hpp"
#include "testing/node_conformance.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::AtStep;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::NodeConformance;
using hippogriff::testing::NodePlace;
using hippogriff::testing::NodeWay;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

class TemporaryPlace final : public NodePlace {
 public:
  explicit TemporaryPlace(Policy policy) : policy_(policy) {}

  std::unique_ptr<NodeClient> open() override {
    return std::make_unique<Node>(segment_.options(policy_));
  }

 private:
  TemporarySegment segment_;
  Policy policy_;
};

INSTANTIATE_TEST_SUITE_P(
    Segment,
    NodeConformance,
    ::testing::Values(NodeWay{
        "shared_memory", [](Policy policy) { return std::make_unique<TemporaryPlace>(policy); }}),
    hippogriff::testing::node_way_name);

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() : node(place.options()) { node.add_device("gpu", 100); }

  TemporarySegment place;
  Node node;
};

TEST_F(NodeTest, joins_a_new_segment_when_its_own_is_deleted_and_holds_what_it_held) {
  const std::uint64_t ours = node.reserve(request(60));
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  Node other(place.options());
  other.add_device("gpu", 100);
  EXPECT_EQ(held(other), 60U) << "though we have not looked";
  EXPECT_EQ(status_of([&] { other.reserve(request(41)); }), Status::busy);
  EXPECT_EQ(status_of([&] { node.reserve(request(41)); }), Status::busy);
  EXPECT_EQ(held(other), 60U);
  EXPECT_EQ(status_of([&] { other.reserve(request(41)); }), Status::busy);
  node.release(ours);
  EXPECT_EQ(held(other), 0U);
}

TEST_F(NodeTest, waits_on_in_a_new_segment) {
  const std::uint64_t all = node.reserve(request(100));
  std::thread thread([&] { node.release(node.reserve(request(10, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  ASSERT_EQ(::truncate(place.path().c_str(), 0), 0);
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1 && held(node) == 100; }));
  node.release(all);
  thread.join();
}

TEST_F(NodeTest, goes_on_from_damaged_images) {
  const std::uint64_t ours = node.reserve(request(60));
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::vector<char> garbage(half_bytes, '?');
  const off_t halves = offsetof(SegmentLayout, halves);
  for (const int which : {0, 1, 2}) {
    for (const int half : {0, 1}) {
      if (which == 2 || which == half) {
        ASSERT_EQ(::pwrite(fd, garbage.data(), garbage.size(), halves + half * off_t{half_bytes}),
                  ssize_t{half_bytes});
      }
    }
    EXPECT_EQ(status_of([&] { node.reserve(request(41)); }), Status::busy) << which;
    EXPECT_EQ(held(node), 60U) << which;
    node.release(node.reserve(request(40)));
  }
  const std::uint64_t nonsense = 0xffff'ffff'ffff'ffff;
  ASSERT_EQ(::pwrite(fd, &nonsense, 8, offsetof(SegmentLayout, commit)), 8);
  node.shrink(ours, 50);
  EXPECT_EQ(held(node), 50U);
  ::close(fd);
}

// Stops itself with the lock of the books.
Child stop_with_the_lock(const TemporarySegment& place) {
  NodeOptions options = place.options();
  options.steps.at = [](void*, const char* where) {
    static bool stopped_once = false;
    if (std::string_view(where) == "within records" && !std::exchange(stopped_once, true)) {
      ::raise(SIGSTOP);
    }
  };
  Child stopped([&] {
    Node theirs(options);
    theirs.add_device("gpu", 100);
    return 0;
  });
  stopped.wait_stopped();
  return stopped;
}

NodeOptions impatient(const TemporarySegment& place) {
  NodeOptions options = place.options();
  options.lock_timeout = milliseconds(100);
  return options;
}

TEST_F(NodeTest, says_who_keeps_the_lock_when_its_owner_is_stopped) {
  const Child stopped = stop_with_the_lock(place);
  EXPECT_EQ(status_of([&] { const Node other(impatient(place)); }), Status::busy);
  stopped.send(SIGCONT);
  EXPECT_EQ(status_of([&] { node.release(node.reserve(request(100))); }), Status::ok);
}

// And another one has it until all patience is over: nobody is left to put the books right.
TEST_F(NodeTest, that_loses_the_lock_while_it_begins_or_ends_is_gone_afterwards) {
  for (const bool begins : {true, false}) {
    std::unique_ptr<Child> stopped;
    AtStep loss{.place = "before commit", .act = [&] {
                  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
                  const std::uint32_t free = 0;
                  EXPECT_EQ(::pwrite(fd, &free, 4, offsetof(SegmentLayout, lock)), 4);
                  ::close(fd);
                  stopped = std::make_unique<Child>(stop_with_the_lock(place));
                }};
    NodeOptions options = impatient(place);
    options.steps = loss.steps();
    loss.done = !begins;
    const Status status = status_of([&] {
      Node other(options);
      other.add_device("gpu", 100);
      other.reserve(request(10));
      loss.done = false;
    });
    EXPECT_EQ(status, begins ? Status::busy : Status::ok);
    EXPECT_TRUE(loss.done);
    stopped.reset();
  }
  EXPECT_EQ(held(node), 0U);
}

TEST_F(NodeTest, what_is_released_while_the_lock_is_kept_is_free_once_it_is_not) {
  Node other(impatient(place));
  other.add_device("gpu", 100);
  const std::uint64_t all = other.reserve(request(100));
  const Child stopped = stop_with_the_lock(place);
  EXPECT_EQ(status_of([&] { other.release(all); }), Status::ok);
  stopped.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return held(node) == 0; })) << "and nobody asks `other` again";
  EXPECT_EQ(status_of([&] { other.release(all); }), Status::invalid_argument);
}

TEST_F(NodeTest, what_is_given_back_while_the_lock_is_kept_is_not_taken_for_growth_of_the_rest) {
  Node other(impatient(place));
  other.add_device("gpu", 100);
  const std::uint64_t first = other.reserve(request(40));
  const std::uint64_t second = other.reserve(request(30));
  const std::uint64_t third = other.reserve(request(20));
  const Child stopped = stop_with_the_lock(place);
  EXPECT_EQ(status_of([&] { other.shrink(second, 31); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { other.shrink(second, 10); }), Status::ok);
  EXPECT_EQ(status_of([&] { other.release(first); }), Status::ok);
  EXPECT_EQ(status_of([&] { other.shrink(first, 1); }), Status::invalid_argument);
  stopped.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return held(node) == 30; })) << held(node);
  other.grow(second, 80, milliseconds(0));
  other.release(third);
  EXPECT_EQ(held(node), 80U);
}

// A follower had the first reservation grow since its leader looked at the books last.
class GrownReservation {
 public:
  explicit GrownReservation(const TemporarySegment& place) : leader(impatient(place)) {
    leader.add_device("gpu", 100);
    grown = leader.reserve(request(20));
    NodeOptions following = impatient(place);
    following.leader = Leader::parse(leader.leader());
    Node member(following);
    other = leader.reserve(request(40));
    Account account(member, member.add_device("gpu", 100));
    std::string why;
    EXPECT_TRUE(account.take_growing(90, no_wait, why)) << why;
    account.give(90);
  }

  Node leader;
  std::uint64_t grown = 0;
  std::uint64_t other = 0;
};

TEST_F(NodeTest, what_a_follower_had_grow_is_released_with_the_rest_while_the_lock_is_kept) {
  GrownReservation held_by(place);
  ASSERT_EQ(held(node), 90U);
  const Child stopped = stop_with_the_lock(place);
  held_by.leader.release(held_by.grown);
  stopped.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return held(node) == 40; })) << held(node);
  held_by.leader.release(held_by.other);
  EXPECT_EQ(held(node), 0U);
}

TEST_F(NodeTest, what_a_follower_had_grow_is_shrunk_to_what_is_said_while_the_lock_is_kept) {
  GrownReservation held_by(place);
  {
    const Child stopped = stop_with_the_lock(place);
    held_by.leader.shrink(held_by.grown, 15);
    held_by.leader.shrink(held_by.grown, 10);
    stopped.send(SIGCONT);
    EXPECT_TRUE(eventually([&] { return held(node) == 50; })) << held(node);
  }
  held_by.leader.release(held_by.other);
  EXPECT_EQ(held(node), 10U);
}

TEST_F(NodeTest, what_a_follower_had_grow_stays_when_another_is_released_while_the_lock_is_kept) {
  GrownReservation held_by(place);
  const Child stopped = stop_with_the_lock(place);
  held_by.leader.release(held_by.other);
  stopped.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return held(node) == 50; })) << held(node);
}

TEST_F(NodeTest, who_may_wait_for_memory_waits_for_the_lock_as_well) {
  Node other(impatient(place));
  other.add_device("gpu", 100);
  const Child stopped = stop_with_the_lock(place);
  EXPECT_EQ(status_of([&] { other.reserve(request(100)); }), Status::busy);
  std::thread waits([&] { other.release(other.reserve(request(100, long_wait))); });
  std::this_thread::sleep_for(milliseconds(300));
  stopped.send(SIGCONT);
  waits.join();
  EXPECT_EQ(held(node), 0U);
}

TEST_F(NodeTest, who_may_wait_for_growth_waits_for_the_lock_as_well) {
  Node other(impatient(place));
  other.add_device("gpu", 100);
  const std::uint64_t ours = other.reserve(request(10));
  const Child stopped = stop_with_the_lock(place);
  EXPECT_EQ(status_of([&] { other.grow(ours, 100, milliseconds(0)); }), Status::busy);
  const auto interrupted = [] { return true; };
  EXPECT_EQ(status_of([&] { other.grow(ours, 100, long_wait, interrupted); }), Status::cancelled);
  std::thread waits([&] { other.grow(ours, 100, long_wait); });
  std::this_thread::sleep_for(milliseconds(300));
  stopped.send(SIGCONT);
  waits.join();
  EXPECT_EQ(held(node), 100U);
}

// Ends the threads' wait for the lock.
class Growers {
 public:
  Growers(Node& node, const std::vector<std::uint64_t>& handles) {
    for (const std::uint64_t handle : handles) {
      threads_.emplace_back([&, handle] {
        EXPECT_EQ(
            status_of([&] { node.grow(handle, 20, long_wait, [&] { return ends_.load(); }); }),
            Status::cancelled);
      });
    }
  }

  ~Growers() {
    ends_ = true;
    for (std::thread& thread : threads_) {
      thread.join();
    }
  }

  Growers(const Growers&) = delete;
  Growers& operator=(const Growers&) = delete;

 private:
  std::atomic<bool> ends_{false};
  std::vector<std::thread> threads_;
};

TEST_F(NodeTest, who_waits_for_the_lock_keeps_nobody_of_its_process_waiting_nor_do_many_releases) {
  NodeOptions options = place.options();
  options.lock_timeout = milliseconds(500);
  Node other(options);
  other.add_device("gpu", 100);
  std::vector<std::uint64_t> growing(4);
  std::ranges::generate(growing, [&] { return other.reserve(request(10)); });
  std::vector<std::uint64_t> released(20);
  std::ranges::generate(released, [&] { return other.reserve(request(2)); });
  const Child stopped = stop_with_the_lock(place);
  const auto begin = std::chrono::steady_clock::now();
  {
    const Growers growers(other, growing);
    std::this_thread::sleep_for(milliseconds(100));
    std::ranges::for_each(released, [&](std::uint64_t handle) { other.release(handle); });
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(6));
  stopped.send(SIGCONT);
  EXPECT_TRUE(eventually([&] { return held(node) == 40; })) << held(node);
}

TEST_F(NodeTest, several_who_wait_find_all_the_dead_between_them) {
  const auto end_in_child = [&](std::uint64_t size_bytes) {
    return std::make_unique<Child>([this, size_bytes] {
      Node theirs(place.options());
      theirs.add_device("gpu", 100);
      theirs.reserve(request(size_bytes, long_wait));
      ::pause();
      return 0;
    });
  };
  std::vector<std::unique_ptr<Child>> children;
  for (std::size_t count = 0; count < 5; ++count) {
    children.push_back(end_in_child(100));
    ASSERT_TRUE(eventually([&] { return held(node) == 100 && waiting(node) == count; }));
  }
  std::vector<std::thread> living;
  for (std::size_t count = 5; count < 8; ++count) {
    living.emplace_back([this] {
      Node ours(place.options());
      ours.add_device("gpu", 100);
      ours.release(ours.reserve(request(60, long_wait)));
    });
    ASSERT_TRUE(eventually([&] { return waiting(node) == count; }));
  }
  for (const auto& child : children) {
    child->send(SIGKILL);
  }
  for (std::thread& thread : living) {  // nobody else looks
    thread.join();
  }
  EXPECT_EQ(held(node), 0U);
}

TEST_F(NodeTest, who_grows_is_not_refused_because_of_the_dead) {
  const auto hold = [&](std::uint64_t size_bytes, std::uint64_t wanted_bytes) {
    return Child([this, size_bytes, wanted_bytes] {
      Node theirs(place.options());
      theirs.add_device("gpu", 100);
      const std::uint64_t handle = theirs.reserve(request(size_bytes));
      if (wanted_bytes != 0) {
        theirs.grow(handle, wanted_bytes, long_wait);
      }
      ::pause();
      return 0;
    });
  };
  for (int round = 0; round < 5; ++round) {
    const std::uint64_t ours = node.reserve(request(30));
    Child holds = hold(40, 0);
    ASSERT_TRUE(eventually([&] { return held(node) == 70; }));
    Child grows = hold(30, 70);
    ASSERT_TRUE(eventually([&] { return held(node) == 100 && waiting(node) == 1; }));
    std::thread grower(
        [&] { EXPECT_EQ(status_of([&] { node.grow(ours, 90, long_wait); }), Status::ok); });
    Node other(place.options());
    ASSERT_TRUE(eventually([&] { return waiting(other) == 2; }));
    holds.send(SIGKILL);
    grows.send(SIGKILL);
    grower.join();
    node.release(ours);
  }
}

TEST_F(NodeTest, remains_usable_while_there_is_no_room_for_a_new_segment) {
  static std::atomic<bool> full{false};
  NodeOptions options = place.options();
  options.steps.allocate = [](void*, int fd, off_t size) {
    return full ? ENOSPC : ::posix_fallocate(fd, 0, size);
  };
  Node other(options);
  other.add_device("gpu", 100);
  const std::uint64_t ours = other.reserve(request(70));
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  full = true;
  EXPECT_EQ(status_of([&] { other.reserve(request(1)); }), Status::io_error);
  full = false;
  EXPECT_EQ(status_of([&] { other.reserve(request(31)); }), Status::busy);
  EXPECT_EQ(held(node), 70U);
  other.release(ours);
}

TEST_F(NodeTest, forgets_a_dead_client_when_somebody_looks) {
  Child killed([&] {
    Node theirs(place.options());
    theirs.add_device("gpu", 100);
    theirs.reserve(request(100));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  EXPECT_EQ(held(node), 0U);
  node.release(node.reserve(request(100)));
}

TEST_F(NodeTest, takes_another_capacity_of_a_device_that_only_the_dead_use) {
  const Node living(place.options());
  Child killed([&] {
    Node theirs(place.options());
    theirs.add_device("other", 100);
    theirs.reserve(request(100));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  EXPECT_EQ(status_of([&] { node.add_device("other", 200); }), Status::ok);
}

TEST_F(NodeTest, comes_back_to_its_own_capacity_after_somebody_with_another_has_gone) {
  {
    Node other(place.options());
    other.add_device("gpu", 10);
  }
  const std::uint64_t ours = node.reserve(request(100));
  Node other(place.options());
  EXPECT_EQ(status_of([&] { other.add_device("gpu", 10); }), Status::invalid_argument);
  node.release(ours);
}

TEST_F(NodeTest, ends_waits_that_are_cancelled_and_keeps_what_is_held) {
  const std::uint64_t first = node.reserve(request(50));
  node.reserve(request(40));
  std::thread grows(
      [&] { EXPECT_EQ(status_of([&] { node.grow(first, 70, long_wait); }), Status::cancelled); });
  std::thread waits([&] {
    EXPECT_EQ(status_of([&] { node.reserve(request(30, long_wait)); }), Status::cancelled);
  });
  EXPECT_TRUE(eventually([&] { return waiting(node) == 2; }));
  node.cancel_waits();
  grows.join();
  waits.join();
  EXPECT_EQ(waiting(node), 0U);
  EXPECT_EQ(held(node), 90U);
  EXPECT_EQ(status_of([&] { node.reserve(request(30, long_wait)); }), Status::cancelled);
  node.release(node.reserve(request(10, long_wait)));
}

}  // namespace
}  // namespace hippogriff::node
