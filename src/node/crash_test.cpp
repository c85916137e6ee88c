// kill -9 at every step of every operation, and at random moments; at the end the books balance.
#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

constexpr milliseconds wait_limit{10'000};

std::uint64_t environment_number(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): no thread yet
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

// What a test's processes tell each other, in memory of their own.
struct Shared {
  std::atomic<bool> armed{false};
  std::atomic<std::int64_t> steps_left{0};
  std::atomic<std::int64_t> reservations{0};
  std::atomic<std::int64_t> longest_wait_ms{0};
  std::atomic<std::int64_t> failures{0};
};

class SharedMemory {
 public:
  SharedMemory() {
    void* memory =
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    shared_ = new (memory) Shared;
  }

  ~SharedMemory() { ::munmap(shared_, sizeof(Shared)); }

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Shared* operator->() const { return shared_; }

 private:
  Shared* shared_ = nullptr;
};

// Kills the process when the armed count of steps has gone by.
void die_at_step(void* context, const char* /*place*/) {
  auto* shared = static_cast<Shared*>(context);
  if (shared->armed && shared->steps_left.fetch_sub(1) == 0) {
    ::raise(SIGKILL);
  }
}

struct Operation {
  const char* name;
  std::function<void(Node&, SharedMemory&)> run;  // arms itself when all is prepared
};

// Takes the lock and dies.
void leave_locked(const std::string& path) {
  Child owner([&] {
    NodeOptions options;
    options.path = path;
    options.steps.at = [](void*, const char* place) {
      if (std::string_view(place) == "locked") {
        ::raise(SIGKILL);
      }
    };
    const Node node(options);
    return 0;
  });
  EXPECT_EQ(owner.wait(), -SIGKILL);
}

std::vector<Operation> operations(const std::string& path) {
  const auto prepared = [](Node& node, SharedMemory& shared, std::uint64_t size) {
    node.add_device("gpu", 100);
    const std::uint64_t handle = node.reserve({.size_bytes = size});
    shared->armed = true;
    return handle;
  };
  return {
      {"reserve",
       [](Node& node, SharedMemory& shared) {
         node.add_device("gpu", 100);
         shared->armed = true;
         node.reserve({.size_bytes = 30});
       }},
      {"wait in vain",
       [=](Node& node, SharedMemory& shared) {
         prepared(node, shared, 20);
         static_cast<void>(
             status_of([&] { node.reserve({.size_bytes = 90, .timeout = milliseconds(5)}); }));
       }},
      {"grow",
       [=](Node& node, SharedMemory& shared) { node.grow(prepared(node, shared, 10), 20, {}); }},
      {"grow in vain",
       [=](Node& node, SharedMemory& shared) {
         const std::uint64_t handle = prepared(node, shared, 10);
         static_cast<void>(status_of([&] { node.grow(handle, 90, milliseconds(5)); }));
       }},
      {"shrink",
       [=](Node& node, SharedMemory& shared) { node.shrink(prepared(node, shared, 30), 5); }},
      {"release",
       [=](Node& node, SharedMemory& shared) { node.release(prepared(node, shared, 30)); }},
      {"end", [=](Node& node, SharedMemory& shared) { prepared(node, shared, 30); }},
      {"steal",
       [=](Node& node, SharedMemory& shared) {
         leave_locked(path);
         shared->armed = true;
         node.add_device("gpu", 100);
       }},
      {"look",
       [=](Node& node, SharedMemory& shared) {
         prepared(node, shared, 30);
         static_cast<void>(node.view());
       }},
  };
}

// Our 50 stay what they are, and all else comes back.
void expect_balance(Node& ours, const std::string& where) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t rest = ours.reserve({.size_bytes = 50, .timeout = wait_limit});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << where;
  const NodeView view = ours.view();
  ASSERT_EQ(view.reservations.size(), 2U) << where;
  EXPECT_EQ(view.reservations[0].record.size_bytes, 50U) << where;
  EXPECT_EQ(view.reservations[1].record.size_bytes, 50U) << where;
  ours.release(rest);
}

TEST(Crash, at_every_step_of_every_operation_leaves_the_books_right) {
  int kills = 0;
  const TemporarySegment place;
  for (const Operation& operation : operations(place.path())) {
    Node ours(place.options());
    ours.add_device("gpu", 100);
    ours.reserve({.size_bytes = 50});
    for (std::int64_t at = 0;; ++at) {
      SharedMemory shared;
      shared->steps_left = at;
      Child child([&] {
        NodeOptions options = place.options();
        options.steps = {.at = die_at_step, .context = &*shared.operator->()};
        Node node(options);
        operation.run(node, shared);
        return 0;
      });
      const int status = child.wait();
      const std::string where = std::string(operation.name) + " step " + std::to_string(at);
      ASSERT_NO_FATAL_FAILURE(expect_balance(ours, where));
      if (status != -SIGKILL) {
        EXPECT_EQ(status, 0) << where;
        EXPECT_GT(at, 4) << operation.name;
        break;
      }
      ++kills;
    }
  }
  std::cout << kills << " kills\n";
}

TEST(Crash, while_a_segment_is_made_leaves_none_or_a_whole_one) {
  for (std::int64_t at = 0; at < 3; ++at) {
    const TemporarySegment place;
    SharedMemory shared;
    shared->steps_left = at;
    shared->armed = true;
    Child child([&] {
      NodeOptions options = place.options();
      options.steps = {.at = die_at_step, .context = &*shared.operator->()};
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

// One of the processes that are killed at random: reserves, grows, shrinks, releases, for ever.
[[noreturn]] void work(const NodeOptions& options, std::uint64_t seed, SharedMemory& shared) {
  std::mt19937_64 random(seed);
  Node node(options);
  const std::uint32_t device = node.add_device("gpu", 100);
  for (;;) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<std::uint64_t> handle;
    const Status status = status_of([&] {
      handle = node.reserve({.device = device,
                             .size_bytes = 1 + random() % 100,
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
  const std::uint64_t kills = environment_number("HIPPOGRIFF_NODE_KILLS", 2000);
  const std::uint64_t seed = environment_number("HIPPOGRIFF_NODE_SEED", std::random_device{}());
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  SharedMemory shared;
  NodeOptions options = place.options(Policy::aging_mmu);
  options.bound = {.grants_max = 8, .wait_ns_max = 100'000'000};
  std::vector<std::unique_ptr<Child>> children(6);
  for (std::uint64_t kill = 0; kill < kills; ++kill) {
    auto& child = children[random() % children.size()];
    if (child != nullptr) {
      child->send(SIGKILL);
      EXPECT_EQ(child->wait(), -SIGKILL);
    }
    child = std::make_unique<Child>([&]() -> int { work(options, seed + kill, shared); });
    ::usleep(static_cast<useconds_t>(random() % 4000));
  }
  children.clear();
  Node ours(options);
  const std::uint32_t device = ours.add_device("gpu", 100);
  ours.release(
      ours.reserve({.device = device, .size_bytes = 100, .timeout = milliseconds(20'000)}));
  EXPECT_TRUE(ours.view().reservations.empty());
  EXPECT_EQ(shared->failures, 0);
  EXPECT_GT(shared->reservations, static_cast<std::int64_t>(kills / 20));
  // Aged after 100 ms; holders live for milliseconds, deaths are seen within 50 ms each.
  EXPECT_LT(shared->longest_wait_ms, 20'000);
  std::cout << kills << " kills, " << shared->reservations << " reservations, longest wait "
            << shared->longest_wait_ms << " ms\n";
}

}  // namespace
}  // namespace hippogriff::node
