// kill -9 while a segment is made, memory is handed over, and at random moments; at the end the
// books balance. At every step of every operation: crash_steps_test.cpp.
#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/effort.hpp"
#include "testing/node_segment.hpp"
#include "testing/step_kills.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::die_at_step;
using hippogriff::testing::environment_number;
using hippogriff::testing::held_up_max;
using hippogriff::testing::SharedMemory;
using hippogriff::testing::status_of;
using hippogriff::testing::StepCount;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

constexpr milliseconds wait_limit{10'000};

// What a test's processes tell each other, in memory of their own.
struct Shared {
  std::atomic<std::int64_t> reservations{0};
  std::atomic<std::int64_t> longest_wait_ms{0};
  std::atomic<std::int64_t> failures{0};
};

TEST(Crash, while_a_segment_is_made_leaves_none_or_a_whole_one) {
  for (std::int64_t at = 0; at < 3; ++at) {
    const TemporarySegment place;
    SharedMemory<StepCount> steps;
    steps->left = at;
    steps->armed = true;
    Child child([&] {
      NodeOptions options = place.options();
      options.steps = {.at = die_at_step, .context = steps.get()};
      const Node node(options);
      return 0;
    });
    EXPECT_EQ(child.wait(), -SIGKILL);
    Node ours(place.options());
    EXPECT_EQ(ours.view().devices.size(), 0U);
  }
}

TEST(Crash, of_one_being_handed_memory_gives_it_to_the_next) {
  const TemporarySegment place;
  Node ours(place.options(Policy::fifo));
  ours.add_device("gpu", 100);
  const std::uint64_t all = ours.reserve({.size_bytes = 100});
  const Child first([&] {
    Node node(place.options());
    node.add_device("gpu", 100);
    node.reserve({.size_bytes = 100, .timeout = wait_limit});
    ::pause();
    return 0;
  });
  ASSERT_TRUE(
      hippogriff::testing::eventually([&] { return ours.view().reservations.size() == 2; }));
  first.send(SIGSTOP);
  first.wait_stopped();
  ours.release(all);
  EXPECT_EQ(ours.view().reservations[0].record.size_bytes, 100U) << "granted, and asleep";
  first.send(SIGKILL);
  ours.release(ours.reserve({.size_bytes = 100, .timeout = wait_limit}));
}

// One of the processes that are killed at random: reserves at least so much, grows, shrinks,
// releases, for ever.
[[noreturn]] void work(const NodeOptions& options,
                       std::uint64_t seed,
                       std::uint64_t least_bytes,
                       SharedMemory<Shared>& shared) {
  std::mt19937_64 random(seed);
  Node node(options);
  const std::uint32_t device = node.add_device("gpu", 100);
  for (;;) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<std::uint64_t> handle;
    const Status status = status_of([&] {
      handle = node.reserve({.device = device,
                             .size_bytes = least_bytes + random() % (101 - least_bytes),
                             .priority = static_cast<std::int32_t>(random() % 2),
                             .timeout = wait_limit});
    });
    const auto waited =
        std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
    std::int64_t longest = shared->longest_wait_ms;
    while (longest < waited.count() &&
           !shared->longest_wait_ms.compare_exchange_weak(longest, waited.count())) {
    }
    if (status != Status::ok) {
      shared->failures.fetch_add(1);
      continue;
    }
    shared->reservations.fetch_add(1);
    if (random() % 4 == 0) {
      static_cast<void>(status_of([&] { node.grow(*handle, 101, milliseconds(1)); }));
      static_cast<void>(status_of([&] { node.shrink(*handle, 1); }));
      static_cast<void>(
          status_of([&] { node.grow(*handle, 1 + random() % 100, milliseconds(2)); }));
    }
    ::usleep(static_cast<useconds_t>(random() % 300));
    node.release(*handle);
  }
}

// HIPPOGRIFF_NODE_KILLS: how many. Kills come while others wait, hold, commit or wake.
TEST(Crash, at_random_moments_leaks_nothing_and_holds_nobody_up) {
  const std::uint64_t kills = environment_number("HIPPOGRIFF_NODE_KILLS", rounds_of(10'000));
  const std::uint64_t seed = environment_number("HIPPOGRIFF_NODE_SEED", std::random_device{}());
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  SharedMemory<Shared> shared;
  NodeOptions options = place.options(Policy::aging_mmu);
  options.bound = {.grants_max = 8, .wait_ns_max = 100'000'000};
  std::vector<std::unique_ptr<Child>> children(6);
  // The others hardly live for long enough to tell of a long wait. This one does, and asks for all.
  auto survivor = std::make_unique<Child>([&]() -> int { work(options, seed - 1, 100, shared); });
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    auto& child = children[random() % children.size()];
    if (child != nullptr) {
      child->send(SIGKILL);
      EXPECT_EQ(child->wait(), -SIGKILL);
    }
    child = std::make_unique<Child>([&]() -> int { work(options, seed + kill, 1, shared); });
    ::usleep(static_cast<useconds_t>(random() % 4000));
  }
  children.clear();
  survivor.reset();
  Node ours(options);
  const std::uint32_t device = ours.add_device("gpu", 100);
  const Request all{.device = device, .size_bytes = 100, .timeout = held_up_max};
  EXPECT_EQ(status_of([&] { ours.release(ours.reserve(all)); }), Status::ok);
  EXPECT_TRUE(ours.view().reservations.empty());
  EXPECT_EQ(shared->failures, 0);
  EXPECT_GT(shared->reservations, static_cast<std::int64_t>(kills / 20));
  // By the policy's bound: aged after 100 ms, then up to six older ones have their turns, of
  // milliseconds each, or 50 where a holder dies and has to be seen to. Half a second in all.
  EXPECT_LT(shared->longest_wait_ms, held_up_max.count());
  std::cout << kills << " kills, " << shared->reservations << " reservations, longest wait "
            << shared->longest_wait_ms << " ms\n";
}

}  // namespace
}  // namespace hippogriff::node
