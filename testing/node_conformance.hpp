// One suite for all ways to the node. Include it in one test file and, in namespace
// hippogriff::testing,
//   INSTANTIATE_TEST_SUITE_P(Segment, NodeConformance, ::testing::Values(NodeWay{…}),
//   node_way_name);
// Children that a test forks open the node by the same way.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::testing {

// A node of one test's own.
class NodePlace {
 public:
  NodePlace() = default;
  virtual ~NodePlace() = default;
  NodePlace(const NodePlace&) = delete;
  NodePlace& operator=(const NodePlace&) = delete;

  virtual std::unique_ptr<node::NodeClient> open() = 0;
};

struct NodeWay {
  std::string name;
  std::function<std::unique_ptr<NodePlace>(node::Policy)> make;
};

inline std::string node_way_name(const ::testing::TestParamInfo<NodeWay>& info) {
  return info.param.name;
}

class NodeConformance : public ::testing::TestWithParam<NodeWay> {
 protected:
  void SetUp() override { start(node::Policy::mmu); }

  void start(node::Policy policy) {
    node.reset();
    place = GetParam().make(policy);
    node = open();
  }

  [[nodiscard]] std::unique_ptr<node::NodeClient> open() const {
    auto opened = place->open();
    opened->add_device("gpu", 100);
    return opened;
  }

  std::unique_ptr<NodePlace> place;
  std::unique_ptr<node::NodeClient> node;
};

TEST_P(NodeConformance, reserves_grows_shrinks_and_releases) {
  const std::uint64_t first = node->reserve(request(60));
  EXPECT_EQ(held(*node), 60U);
  EXPECT_EQ(status_of([&] { node->reserve(request(41)); }), Status::busy);
  const std::uint64_t second = node->reserve(request(30));
  node->grow(first, 70, no_wait);
  EXPECT_EQ(held(*node), 100U);
  EXPECT_EQ(status_of([&] { node->grow(first, 71, no_wait); }), Status::busy);
  node->shrink(first, 20);
  EXPECT_EQ(held(*node), 50U);
  node->release(first);
  node->release(second);
  EXPECT_EQ(held(*node), 0U);
  EXPECT_TRUE(node->view().reservations.empty());
}

TEST_P(NodeConformance, shows_devices_and_who_holds_and_waits) {
  node->set_policy(node::Policy::aging_mmu, {.grants_max = 3, .wait_ns_max = 4});
  node->set_unreserved(0, {.outside_bytes = 7});
  node->reserve(request(10, no_wait, -5));
  const node::NodeView view = node->view();
  EXPECT_EQ(view.policy, node::Policy::aging_mmu);
  ASSERT_EQ(view.devices.size(), 1U);
  EXPECT_EQ(view.devices[0].name_view(), "gpu");
  EXPECT_EQ(view.devices[0].capacity_bytes, 100U);
  EXPECT_EQ(view.devices[0].outside_bytes, 7U);
  ASSERT_EQ(view.reservations.size(), 1U);
  EXPECT_EQ(view.reservations[0].record.size_bytes, 10U);
  EXPECT_EQ(view.reservations[0].record.priority, -5);
  EXPECT_GT(view.reservations[0].record.since_ns, 0);
  EXPECT_NE(view.reservations[0].pid, 0U);
}

TEST_P(NodeConformance, refuses_at_once_what_can_never_fit_and_says_the_sizes) {
  try {
    node->reserve(request(101, long_wait));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::out_of_device_memory);
    EXPECT_EQ(error.failure().operation, "reserve");
    EXPECT_EQ(error.failure().object, "gpu");
    EXPECT_NE(error.failure().detail.find("101 B asked, the device has 100 B"), std::string::npos);
  }
  const std::uint64_t whole = node->reserve(request(100));
  EXPECT_EQ(status_of([&] { node->grow(whole, 101, long_wait); }), Status::out_of_device_memory);
  constexpr std::uint64_t gibibyte = std::uint64_t{1} << 30;
  const std::uint32_t large = node->add_device("large", gibibyte);
  try {
    node->reserve({.device = large, .size_bytes = gibibyte + 1});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(error.failure().detail.find("1073741825 bytes asked, the device has 1073741824"),
              std::string::npos)
        << error.failure().detail;
  }
}

TEST_P(NodeConformance, refuses_what_makes_no_sense) {
  const std::uint64_t one = node->reserve(request(10));
  EXPECT_EQ(status_of([&] { node->reserve(request(0)); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->reserve({.device = 1, .size_bytes = 1}); }),
            Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->grow(one, 10, no_wait); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->shrink(one, 11); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->shrink(one, 0); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->release(one + 1); }), Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->set_policy(node::Policy::mmu, {.wait_ns_max = -1}); }),
            Status::invalid_argument);
  for (const std::string& name : {std::string("two words"),
                                  std::string(),
                                  std::string(48, 'x'),
                                  std::string("a\0b", 3),
                                  std::string(10'000, 'x')}) {
    EXPECT_EQ(status_of([&] { node->add_device(name, 1); }), Status::invalid_argument);
  }
  EXPECT_EQ(status_of([&] { node->add_device("large", (std::uint64_t{1} << 50U) + 1); }),
            Status::invalid_argument);
  EXPECT_EQ(status_of([&] { node->add_device("gpu", 50); }), Status::invalid_argument) << "in use";
  node->release(one);
  EXPECT_EQ(status_of([&] { node->release(one); }), Status::invalid_argument);
  EXPECT_EQ(node->add_device("gpu", 50), 0U) << "nobody holds any of it";
  EXPECT_EQ(node->add_device(std::string(47, 'x'), 50), 1U);
}

TEST_P(NodeConformance, waits_up_to_its_timeout) {
  const std::uint64_t all = node->reserve(request(100));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of([&] { node->reserve(request(1, std::chrono::milliseconds(150))); }),
            Status::timed_out);
  const auto took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took, std::chrono::milliseconds(150));
  EXPECT_LT(took, soon);
  EXPECT_EQ(waiting(*node), 0U);
  node->release(all);
}

TEST_P(NodeConformance, wakes_a_thread_and_another_process_when_memory_is_there) {
  const std::uint64_t all = node->reserve(request(100));
  Child child([&] {
    const auto theirs = open();
    theirs->reserve(request(50, long_wait));
    return 0;
  });
  std::thread thread([&] { node->release(node->reserve(request(50, long_wait))); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 2; }));
  node->release(all);
  thread.join();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(*node), 0U);
}

TEST_P(NodeConformance, wakes_a_thread_whose_reservation_may_grow) {
  const std::uint64_t ours = node->reserve(request(40));
  const std::uint64_t rest = node->reserve(request(60));
  std::thread thread([&] { node->grow(ours, 70, long_wait); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  node->shrink(rest, 30);
  thread.join();
  EXPECT_EQ(held(*node), 100U);
}

TEST_P(NodeConformance, growth_that_would_wait_for_itself_is_refused) {
  const std::uint64_t first = node->reserve(request(50));
  const std::uint64_t second = node->reserve(request(50));
  std::thread thread([&] { node->grow(first, 60, long_wait); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  EXPECT_EQ(status_of([&] { node->grow(second, 60, long_wait); }), Status::out_of_device_memory);
  node->release(second);
  thread.join();
  EXPECT_EQ(held(*node), 60U);
}

TEST_P(NodeConformance, release_ends_the_wait_of_its_own_growth) {
  const std::uint64_t first = node->reserve(request(50));
  node->reserve(request(50));
  std::thread thread(
      [&] { EXPECT_EQ(status_of([&] { node->grow(first, 60, long_wait); }), Status::cancelled); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  node->release(first);
  thread.join();
}

TEST_P(NodeConformance, waits_end_when_they_are_interrupted_and_leave_things_as_they_were) {
  const std::uint64_t ours = node->reserve(request(40));
  const std::uint64_t rest = node->reserve(request(60));
  std::atomic<bool> interrupts{false};
  const auto interrupted = [&] { return interrupts.load(); };
  std::atomic<int> cancelled{0};
  std::thread grows([&] {
    cancelled +=
        status_of([&] { node->grow(ours, 70, long_wait, interrupted); }) == Status::cancelled;
  });
  std::thread reserves([&] {
    node::Request wish = request(50, long_wait);
    wish.interrupted = interrupted;
    cancelled += status_of([&] { node->reserve(wish); }) == Status::cancelled;
  });
  std::thread stays([&] { node->release(node->reserve(request(10, long_wait))); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 3; }));
  interrupts = true;
  grows.join();
  reserves.join();
  EXPECT_EQ(cancelled, 2);
  EXPECT_EQ(waiting(*node), 1U) << "of the one that was not";
  EXPECT_EQ(held(*node), 100U);
  node->release(rest);
  stays.join();
  node->release(ours);
  EXPECT_EQ(held(*node), 0U);
}

TEST_P(NodeConformance, ends_with_its_object) {
  {
    const auto other = open();
    other->reserve(request(100));
    EXPECT_EQ(held(*node), 100U);
  }
  EXPECT_EQ(held(*node), 0U);
  Child child([&] {
    const auto theirs = open();
    theirs->reserve(request(100));
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(*node), 0U);
}

TEST_P(NodeConformance, ends_with_its_process_however_that_ends) {
  Child killed([&] {
    const auto theirs = open();
    theirs->reserve(request(100));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  node->release(node->reserve(request(100, long_wait)));
  EXPECT_EQ(held(*node), 0U);
}

TEST_P(NodeConformance, ends_with_its_process_although_a_forked_child_of_it_lives) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  Child killed([&] {
    const auto theirs = open();
    theirs->reserve(request(100));
    if (::fork() == 0) {
      // Until the test closes its end: no longer than the test, whatever happens to it.
      ::close(ends[1]);
      char byte = 0;
      static_cast<void>(::read(ends[0], &byte, 1));
      ::_exit(0);
    }
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  node->release(node->reserve(request(100, long_wait)));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_P(NodeConformance, a_waiting_thread_notices_the_death_of_who_holds) {
  const std::uint64_t all = node->reserve(request(100));
  Child holder([&] {
    const auto theirs = open();
    theirs->reserve(request(100, long_wait));
    ::pause();
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  node->release(all);
  std::thread thread([&] {
    const auto start = std::chrono::steady_clock::now();
    node->reserve(request(100, long_wait));
    EXPECT_LT(std::chrono::steady_clock::now() - start, soon);
  });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  holder.send(SIGKILL);
  thread.join();
}

TEST_P(NodeConformance, the_death_of_one_that_waits_lets_those_behind_it_go_on) {
  start(node::Policy::fifo);
  node->reserve(request(50));
  Child first([&] {
    const auto theirs = open();
    theirs->reserve(request(60, long_wait));
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  EXPECT_EQ(status_of([&] { node->reserve(request(50)); }), Status::busy) << "not its turn";
  std::thread thread([&] {
    const auto start = std::chrono::steady_clock::now();
    node->reserve(request(50, long_wait));
    EXPECT_LT(std::chrono::steady_clock::now() - start, soon);
  });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 2; }));
  first.send(SIGKILL);
  thread.join();
}

TEST_P(NodeConformance, lets_what_fits_past_what_waits_where_the_policy_wants_it) {
  const std::uint64_t half = node->reserve(request(50));
  std::thread thread([&] { node->reserve(request(60, long_wait)); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  const std::uint64_t past = node->reserve(request(40));
  node->release(past);
  node->set_policy(node::Policy::fifo, {});
  EXPECT_EQ(status_of([&] { node->reserve(request(40)); }), Status::busy);
  node->release(half);
  thread.join();
}

TEST_P(NodeConformance, serves_the_higher_priority_first) {
  start(node::Policy::priority_fifo);
  const std::uint64_t all = node->reserve(request(100));
  std::atomic<int> turn{0};
  const auto take = [&](std::int32_t priority, int expected) {
    const std::uint64_t handle = node->reserve(request(100, long_wait, priority));
    EXPECT_EQ(turn++, expected);
    node->release(handle);
  };
  std::thread low([&] { take(1, 1); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  std::thread high([&] { take(2, 0); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 2; }));
  node->release(all);
  low.join();
  high.join();
}

TEST_P(NodeConformance, is_refused_in_a_forked_child_which_makes_its_own) {
  const std::uint64_t ours = node->reserve(request(60));
  Child child([&] {
    if (status_of([&] { node->release(ours); }) != Status::forked) {
      return 1;
    }
    node.reset();
    const auto own = open();
    return held(*own) == 60 ? 0 : 2;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(held(*node), 60U);
}

TEST_P(NodeConformance, has_room_for_so_many_reservations_and_says_so) {
  node->add_device("gpu", 1'000'000);
  std::vector<std::uint64_t> handles;
  for (std::uint32_t count = 0; count < node::reservations_max; ++count) {
    handles.push_back(node->reserve(request(1)));
  }
  EXPECT_EQ(node->view().reservations.size(), node::reservations_max);
  EXPECT_EQ(status_of([&] { node->reserve(request(1)); }), Status::busy);
  node->release(handles.back());
  node->reserve(request(1));
}

TEST_P(NodeConformance, counts_what_programs_outside_use) {
  node->set_unreserved(0, {.outside_bytes = 70});
  EXPECT_EQ(status_of([&] { node->reserve(request(31)); }), Status::busy);
  std::thread thread([&] { node->release(node->reserve(request(31, long_wait))); });
  EXPECT_TRUE(eventually([&] { return waiting(*node) == 1; }));
  node->set_unreserved(0, {.outside_bytes = 69});
  thread.join();
}

inline void reserve_at_random(node::NodeClient& node,
                              std::uint64_t seed,
                              std::atomic<std::int64_t>& used) {
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 60; ++turn) {
    const auto size = static_cast<std::int64_t>(1 + random() % 60);
    const std::uint64_t handle = node.reserve(request(
        static_cast<std::uint64_t>(size), long_wait, static_cast<std::int32_t>(random() % 2)));
    EXPECT_LE(used.fetch_add(size) + size, 100);
    std::this_thread::yield();
    used.fetch_sub(size);
    node.release(handle);
  }
}

// Threads of two clients; nothing promised twice, nobody left waiting.
TEST_P(NodeConformance, threads_share_a_device_under_every_policy) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  for (std::uint32_t policy = 0; policy < node::policy_count; ++policy) {
    start(static_cast<node::Policy>(policy));
    const auto second = open();
    std::atomic<std::int64_t> used{0};
    std::vector<std::thread> threads;
    for (std::uint64_t index = 0; index < 6; ++index) {
      node::NodeClient& client = index % 2 == 0 ? *node : *second;
      threads.emplace_back(
          [&client, &used, seed, index] { reserve_at_random(client, seed + index, used); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(held(*node), 0U);
    EXPECT_EQ(node->view().policy, static_cast<node::Policy>(policy));
  }
}

// Clients that never wait, beside a list of sizes.
class NodeOracle {
 public:
  NodeOracle(std::vector<std::unique_ptr<node::NodeClient>>& nodes, std::uint64_t seed)
      : nodes_(nodes), random_(seed) {}

  void take_turn() {
    const std::uint64_t size = 1 + random_() % 400;
    node::NodeClient& node = *nodes_[random_() % nodes_.size()];
    if (entries_.empty() || random_() % 2 == 0) {
      reserve(node, size);
    } else {
      change(random_() % entries_.size(), size);
    }
    ASSERT_EQ(held(node), 1000 - free());
  }

 private:
  struct Entry {
    node::NodeClient* node;
    std::uint64_t handle;
    std::uint64_t size;
  };

  [[nodiscard]] std::uint64_t free() const {
    std::uint64_t left = 1000;
    for (const Entry& entry : entries_) {
      left -= entry.size;
    }
    return left;
  }

  void reserve(node::NodeClient& node, std::uint64_t size) {
    const bool fits = size <= free();
    std::uint64_t handle = 0;
    const Status status = status_of([&] { handle = node.reserve(request(size)); });
    ASSERT_EQ(status, fits ? Status::ok : Status::busy);
    if (fits) {
      entries_.push_back({&node, handle, size});
    }
  }

  void change(std::size_t at, std::uint64_t size) {
    Entry& entry = entries_[at];
    if (size == entry.size || random_() % 2 == 0) {
      entry.node->release(entry.handle);
      entries_.erase(entries_.begin() + static_cast<long>(at));
    } else if (size < entry.size) {
      entry.node->shrink(entry.handle, size);
      entry.size = size;
    } else {
      const bool fits = size - entry.size <= free();
      const Status status = status_of([&] { entry.node->grow(entry.handle, size, no_wait); });
      ASSERT_TRUE(fits ? status == Status::ok
                       : status == Status::busy || status == Status::out_of_device_memory);
      entry.size = fits ? size : entry.size;
    }
  }

  std::vector<std::unique_ptr<node::NodeClient>>& nodes_;
  std::mt19937_64 random_;
  std::vector<Entry> entries_;
};

TEST_P(NodeConformance, agrees_with_an_oracle_about_every_answer_when_nobody_waits) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  start(static_cast<node::Policy>(seed % node::policy_count));
  std::vector<std::unique_ptr<node::NodeClient>> nodes;
  for (int count = 0; count < 3; ++count) {
    nodes.push_back(place->open());
    nodes.back()->add_device("gpu", 1000);
  }
  NodeOracle oracle(nodes, seed);
  for (int turn = 0; turn < 10'000 && !::testing::Test::HasFatalFailure(); ++turn) {
    oracle.take_turn();
  }
}

}  // namespace hippogriff::testing
