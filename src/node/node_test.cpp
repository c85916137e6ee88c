// Reservations as callers see them: at once, by waiting, refused; threads, forks, repairs.
#include "node/node.hpp"

#include "base/error.hpp"
#include "node/layout.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <iostream>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

constexpr milliseconds no_wait{0};
constexpr milliseconds long_wait{20'000};

Request request(std::uint64_t size, milliseconds timeout = no_wait, std::int32_t priority = 0) {
  return {.device = 0, .size_bytes = size, .priority = priority, .timeout = timeout};
}

std::uint64_t held(Node& node) {
  std::uint64_t sum = 0;
  for (const auto& reservation : node.view().reservations) {
    sum += reservation.record.size_bytes;
  }
  return sum;
}

std::size_t waiting(Node& node) {
  std::size_t count = 0;
  for (const auto& reservation : node.view().reservations) {
    count += reservation.record.waits() ? 1U : 0U;
  }
  return count;
}

class NodeTest : public ::testing::Test {
 protected:
  NodeTest() : node(place.options()) { node.add_device("gpu", 100); }

  TemporarySegment place;
  Node node;
};

TEST_F(NodeTest, reserves_grows_shrinks_and_releases) {
  const std::uint64_t first = node.reserve(request(60));
  EXPECT_EQ(held(node), 60U);
  EXPECT_EQ(status_of([&] { node.reserve(request(41)); }), Status::busy);
  const std::uint64_t second = node.reserve(request(30));
  node.grow(first, 70, no_wait);
  EXPECT_EQ(held(node), 100U);
  EXPECT_EQ(status_of([&] { node.grow(first, 71, no_wait); }), Status::busy);
  node.shrink(first, 20);
  EXPECT_EQ(held(node), 50U);
  node.release(first);
  node.release(second);
  EXPECT_EQ(held(node), 0U);
  EXPECT_TRUE(node.view().reservations.empty());
}

TEST_F(NodeTest, refuses_at_once_what_can_never_fit_and_says_the_sizes) {
  try {
    node.reserve(request(101, long_wait));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::out_of_device_memory);
    EXPECT_NE(error.failure().detail.find("101 B asked, the device has 100 B"), std::string::npos);
  }
  const std::uint64_t whole = node.reserve(request(100));
  EXPECT_EQ(status_of([&] { node.grow(whole, 101, long_wait); }), Status::out_of_device_memory);
}

TEST_F(NodeTest, refuses_what_makes_no_sense) {
  const std::uint64_t one = node.reserve(request(10));
  EXPECT_EQ(status_of([&] { node.reserve(request(0)); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.reserve({.device = 1, .size_bytes = 1}); }),
            Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.grow(one, 10, no_wait); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.shrink(one, 11); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.shrink(one, 0); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.release(one + 1); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.add_device("two words", 1); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node.add_device("gpu", 50); }), Status::invalid_argument) << "in use";
  node.release(one);
  EXPECT_EQ(status_of([&] { node.release(one); }), Status::invalid_argument);
  EXPECT_EQ(node.add_device("gpu", 50), 0U) << "nobody holds any of it";
}

TEST_F(NodeTest, waits_up_to_its_timeout) {
  const std::uint64_t all = node.reserve(request(100));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of([&] { node.reserve(request(1, milliseconds(150))); }), Status::timed_out);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, milliseconds(150));
  EXPECT_LT(took, std::chrono::seconds(20));
  EXPECT_EQ(waiting(node), 0U);
  node.release(all);
}

TEST_F(NodeTest, wakes_a_thread_and_another_process_when_memory_is_there) {
  const std::uint64_t all = node.reserve(request(100));
  Child child([&] {
    Node theirs(place.options());
    theirs.add_device("gpu", 100);
    theirs.reserve(request(50, long_wait));
    return 0;
  });
  std::thread thread([&] { node.release(node.reserve(request(50, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 2; }));
  node.release(all);
  thread.join();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(node), 0U);
}

TEST_F(NodeTest, growth_that_would_wait_for_itself_is_refused) {
  const std::uint64_t first = node.reserve(request(50));
  const std::uint64_t second = node.reserve(request(50));
  std::thread thread([&] { node.grow(first, 60, long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  EXPECT_EQ(status_of([&] { node.grow(second, 60, long_wait); }), Status::out_of_device_memory);
  node.release(second);
  thread.join();
  EXPECT_EQ(held(node), 60U);
}

TEST_F(NodeTest, release_ends_the_wait_of_its_own_growth) {
  const std::uint64_t first = node.reserve(request(50));
  node.reserve(request(50));
  std::thread thread(
      [&] { EXPECT_EQ(status_of([&] { node.grow(first, 60, long_wait); }), Status::cancelled); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  node.release(first);
  thread.join();
}

TEST_F(NodeTest, ends_with_its_process_and_with_its_object) {
  Child child([&] {
    Node theirs(place.options());
    theirs.add_device("gpu", 100);
    theirs.reserve(request(100));
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(node), 0U);
  Child killed([&] {
    Node theirs(place.options());
    theirs.add_device("gpu", 100);
    theirs.reserve(request(100));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  EXPECT_EQ(held(node), 100U) << "nobody has looked yet";
  node.release(node.reserve(request(100)));
}

TEST_F(NodeTest, a_waiting_process_notices_a_death_by_itself) {
  const std::uint64_t all = node.reserve(request(100));
  Child holder([&] {
    Node theirs(place.options());
    theirs.add_device("gpu", 100);
    theirs.reserve(request(100, long_wait));
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  node.release(all);
  std::thread killer([&] {
    ::usleep(100'000);
    holder.send(SIGKILL);
  });
  const auto start = std::chrono::steady_clock::now();
  node.reserve(request(100, long_wait));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  killer.join();
}

TEST_F(NodeTest, is_refused_in_a_forked_child_which_makes_its_own) {
  const std::uint64_t ours = node.reserve(request(60));
  Child child([&] {
    if (status_of([&] { node.release(ours); }) != Status::forked) {
      return 1;
    }
    Node own(place.options());
    own.add_device("gpu", 100);
    return held(own) == 60 ? 0 : 2;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(node), 60U);
}

TEST_F(NodeTest, joins_a_new_segment_when_its_own_is_deleted_and_holds_what_it_held) {
  const std::uint64_t ours = node.reserve(request(60));
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  Node other(place.options());
  other.add_device("gpu", 100);
  EXPECT_EQ(held(other), 0U) << "we have not looked";
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

TEST_F(NodeTest, says_who_keeps_the_lock_when_its_owner_is_stopped) {
  NodeOptions options = place.options();
  options.steps.at = [](void*, const char* where) {
    static bool stopped_once = false;
    if (std::string_view(where) == "within records" && !std::exchange(stopped_once, true)) {
      ::raise(SIGSTOP);
    }
  };
  const Child stopped([&] {
    Node theirs(options);
    theirs.add_device("gpu", 100);
    return 0;
  });
  stopped.wait_stopped();
  NodeOptions quick = place.options();
  quick.lock_timeout = milliseconds(100);
  EXPECT_EQ(status_of([&] { const Node other(quick); }), Status::busy);
  stopped.send(SIGCONT);
  EXPECT_EQ(status_of([&] { node.release(node.reserve(request(100))); }), Status::ok);
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

TEST_F(NodeTest, has_room_for_so_many_reservations_and_says_so) {
  node.add_device("gpu", 1'000'000);
  std::vector<std::uint64_t> handles;
  for (std::uint32_t count = 0; count < reservations_max; ++count) {
    handles.push_back(node.reserve(request(1)));
  }
  EXPECT_EQ(status_of([&] { node.reserve(request(1)); }), Status::busy);
  node.release(handles.back());
  node.reserve(request(1));
}

TEST_F(NodeTest, counts_what_programs_outside_use) {
  node.set_outside(0, 70);
  EXPECT_EQ(status_of([&] { node.reserve(request(31)); }), Status::busy);
  std::thread thread([&] { node.release(node.reserve(request(31, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  node.set_outside(0, 69);
  thread.join();
}

void reserve_at_random(Node& node, std::uint64_t seed, std::atomic<std::int64_t>& used) {
  const std::uint32_t device = node.add_device("gpu", 100);
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 60; ++turn) {
    const auto size = static_cast<std::int64_t>(1 + random() % 60);
    const std::uint64_t handle = node.reserve({.device = device,
                                               .size_bytes = static_cast<std::uint64_t>(size),
                                               .priority = static_cast<std::int32_t>(random() % 2),
                                               .timeout = long_wait});
    EXPECT_LE(used.fetch_add(size) + size, 100);
    std::this_thread::yield();
    used.fetch_sub(size);
    node.release(handle);
  }
}

// Threads of two nodes in one process; nothing promised twice, nobody left waiting.
TEST(NodeThreads, share_a_device_under_every_policy) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  for (std::uint32_t policy = 0; policy < policy_count; ++policy) {
    const TemporarySegment place;
    Node first(place.options(static_cast<Policy>(policy)));
    Node second(place.options());
    std::atomic<std::int64_t> used{0};
    std::vector<std::thread> threads;
    for (std::uint64_t index = 0; index < 6; ++index) {
      Node& node = index % 2 == 0 ? first : second;
      threads.emplace_back(
          [&node, &used, seed, index] { reserve_at_random(node, seed + index, used); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(held(first), 0U);
    EXPECT_EQ(first.view().policy, static_cast<Policy>(policy));
  }
}

// Three nodes that never wait, against a list of sizes: what fits is granted, what does not is not.
TEST(NodeOracle, agrees_about_every_answer_when_nobody_waits) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  std::vector<std::unique_ptr<Node>> nodes;
  for (int count = 0; count < 3; ++count) {
    nodes.push_back(std::make_unique<Node>(place.options(static_cast<Policy>(random() % 5))));
    nodes.back()->add_device("gpu", 1000);
  }

  struct Entry {
    Node* node;
    std::uint64_t handle;
    std::uint64_t size;
  };

  std::vector<Entry> oracle;
  const auto free = [&] {
    std::uint64_t left = 1000;
    for (const Entry& entry : oracle) {
      left -= entry.size;
    }
    return left;
  };
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::uint64_t size = 1 + random() % 400;
    Node& node = *nodes[random() % nodes.size()];
    if (oracle.empty() || random() % 2 == 0) {
      const bool fits = size <= free();
      std::uint64_t handle = 0;
      const Status status = status_of([&] { handle = node.reserve(request(size)); });
      ASSERT_EQ(status, fits ? Status::ok : Status::busy) << turn;
      if (fits) {
        oracle.push_back({&node, handle, size});
      }
      continue;
    }
    const std::size_t at = random() % oracle.size();
    Entry& entry = oracle[at];
    if (size == entry.size || random() % 2 == 0) {
      entry.node->release(entry.handle);
      oracle.erase(oracle.begin() + static_cast<long>(at));
    } else if (size < entry.size) {
      entry.node->shrink(entry.handle, size);
      entry.size = size;
    } else {
      const bool fits = size - entry.size <= free();
      const Status status = status_of([&] { entry.node->grow(entry.handle, size, no_wait); });
      ASSERT_TRUE(fits ? status == Status::ok
                       : status == Status::busy || status == Status::out_of_device_memory)
          << turn;
      entry.size = fits ? size : entry.size;
    }
    ASSERT_EQ(held(node), 1000 - free()) << turn;
  }
}

}  // namespace
}  // namespace hippogriff::node
