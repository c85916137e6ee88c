// kill -9 at every step of every operation: the books balance, and nobody is held up.
#include "base/error.hpp"
#include "node/node.hpp"
#include "testing/eventually.hpp"
#include "testing/node_segment.hpp"
#include "testing/step_kills.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::die_at_step;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::held_up_max;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::request;
using hippogriff::testing::SharedMemory;
using hippogriff::testing::status_of;
using hippogriff::testing::StepCount;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

constexpr milliseconds in_vain{5};

// A segment in which we hold 50 of 100. Of the policies fifo holds up most: all who come later.
struct World {
  World() : ours(place.options(Policy::fifo)) {
    ours.add_device("gpu", 100);
    ours.reserve(request(50));
  }

  void lead() {
    leading = std::make_unique<Node>(place.options());
    leading->add_device("gpu", 100);
  }

  // Of a process that follows who leads, if there is one.
  [[nodiscard]] NodeOptions options() const {
    NodeOptions options = place.options();
    options.leader = leading != nullptr ? Leader::parse(leading->leader()) : std::nullopt;
    return options;
  }

  TemporarySegment place;
  Node ours;
  std::unique_ptr<Node> leading;
  std::optional<Child> waiter;
  SharedMemory<StepCount> steps;
};

struct Operation {
  const char* name;
  void (*run)(Node& node, World& world);  // by who is killed; arms it when all is prepared
  // Before and after that, by others.
  void (*prepare)(World& world) = [](World&) {};
  void (*check)(World& world) = [](World&) {};
};

// For googletest.
void PrintTo(const Operation& operation, std::ostream* out) {  // NOLINT(*-identifier-naming)
  *out << operation.name;
}

std::uint64_t prepared(Node& node, World& world, std::uint64_t size_bytes) {
  node.add_device("gpu", 100);
  const std::uint64_t handle = size_bytes != 0 ? node.reserve(request(size_bytes)) : 0;
  world.steps->armed = true;
  return handle;
}

template <typename Call>
void expect_not_held_up(Call call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  EXPECT_LT(std::chrono::steady_clock::now() - start, held_up_max);
}

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

// Another of the group can use that much, and nobody more than the leader's share is in the books.
void expect_group_has(Node& member, World& world, std::uint64_t size_bytes) {
  EXPECT_TRUE(member.take(0, size_bytes));
  EXPECT_FALSE(member.take(0, 1));
  member.give(0, size_bytes);
  EXPECT_EQ(held(world.ours), 50 + size_bytes);
  EXPECT_EQ(waiting(world.ours), 0U);
}

// A leader of 20, of which who was killed used some.
void lead_with_20(World& world) {
  world.lead();
  world.leading->reserve(request(20));
}

void expect_all_20_usable(World& world) {
  Node member(world.options());
  member.add_device("gpu", 100);
  expect_group_has(member, world, 20);
}

// What the dead waited for keeps no newcomer waiting.
void expect_newcomer_served(World& world) {
  expect_not_held_up([&] { world.ours.release(world.ours.reserve(request(40, long_wait))); });
  EXPECT_EQ(waiting(world.ours), 0U);
}

std::vector<Operation> operations_of_one() {
  return {
      {"reserve",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.reserve(request(30));
       }},
      {"wait in vain",
       [](Node& node, World& world) {
         prepared(node, world, 20);
         static_cast<void>(status_of([&] { node.reserve(request(90, in_vain)); }));
       }},
      {"grow", [](Node& node, World& world) { node.grow(prepared(node, world, 10), 20, no_wait); }},
      {"grow in vain",
       [](Node& node, World& world) {
         const std::uint64_t handle = prepared(node, world, 10);
         static_cast<void>(status_of([&] { node.grow(handle, 90, in_vain); }));
       }},
      {"shrink", [](Node& node, World& world) { node.shrink(prepared(node, world, 30), 5); }},
      {"release", [](Node& node, World& world) { node.release(prepared(node, world, 30)); }},
      {"release for one that waits",
       [](Node& node, World& world) {
         node.add_device("gpu", 100);
         const std::uint64_t handle = node.reserve(request(30));
         static_cast<void>(eventually([&] { return waiting(node) == 1; }));
         world.steps->armed = true;
         node.release(handle);
       },
       [](World& world) {
         world.waiter.emplace([&world] {
           Node node(world.place.options());
           node.add_device("gpu", 100);
           static_cast<void>(eventually([&] { return held(node) == 80; }));
           node.reserve(request(40, long_wait));
           return 0;
         });
       },
       [](World& world) { expect_not_held_up([&] { EXPECT_EQ(world.waiter->wait(), 0); }); }},
      {"end", [](Node& node, World& world) { prepared(node, world, 30); }},
      {"defer",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.defer(request(30));
       }},
      {"hand over",
       [](Node& node, World& world) {
         prepared(node, world, 30);
         node.hand_over();
       }},
  };
}

std::vector<Operation> operations_on_all() {
  return {
      {"steal",
       [](Node& node, World& world) {
         leave_locked(world.place.path());
         world.steps->armed = true;
         node.add_device("gpu", 100);
       }},
      {"look",
       [](Node& node, World& world) {
         prepared(node, world, 30);
         static_cast<void>(node.view());
       }},
      {"add a device",
       [](Node& node, World& world) {
         world.steps->armed = true;
         node.add_device("more", 70);
       },
       [](World&) {},
       [](World& world) {
         const std::uint32_t more = world.ours.add_device("more", 70);
         EXPECT_EQ(world.ours.view().devices.size(), 2U);
         world.ours.release(world.ours.reserve({.device = more, .size_bytes = 70}));
       }},
      {"set the policy",
       [](Node& node, World& world) {
         world.steps->armed = true;
         node.set_policy(Policy::mmu, {.grants_max = 3});
       },
       [](World&) {},
       [](World& world) {
         const NodeView view = world.ours.view();
         const bool old = view.policy == Policy::fifo && view.bound == OvertakeBound{};
         const bool set = view.policy == Policy::mmu && view.bound.grants_max == 3;
         EXPECT_TRUE(old || set);
       }},
      {"set what is not reserved",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.set_unreserved(0, {.outside_bytes = 5, .context_bytes = 7});
       },
       [](World&) {},
       [](World& world) {
         const NodeView view = world.ours.view();
         const DeviceRecord& device = view.devices.at(0);
         EXPECT_TRUE((device.outside_bytes == 0 && device.context_bytes == 0) ||
                     (device.outside_bytes == 5 && device.context_bytes == 7));
         world.ours.set_unreserved(0, {});
       }},
  };
}

std::vector<Operation> operations_of_a_follower() {
  return {
      {"take and give",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.take(0, 10);
         node.give(0, 10);
       },
       lead_with_20,
       expect_all_20_usable},
      {"hand over by a follower",
       [](Node& node, World& world) {
         node.add_device("gpu", 100);
         node.take(0, 10);
         world.steps->armed = true;
         node.hand_over();
       },
       lead_with_20,
       expect_all_20_usable},
      {"grow the group's",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.grow_group(0, 30, no_wait);
       },
       lead_with_20,
       [](World& world) {
         Node member(world.options());
         member.add_device("gpu", 100);
         expect_not_held_up([&] { member.grow_group(0, 30, long_wait); });
         expect_group_has(member, world, 30);
       }},
      {"grow the group's in vain",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         static_cast<void>(status_of([&] { node.grow_group(0, 90, in_vain); }));
       },
       [](World& world) {
         world.lead();
         world.leading->reserve(request(10));
       },
       [](World& world) {
         expect_newcomer_served(world);
         Node member(world.options());
         member.add_device("gpu", 100);
         expect_not_held_up([&] { member.grow_group(0, 30, long_wait); });
         expect_group_has(member, world, 30);
       }},
  };
}

std::vector<Operation> claims() {
  return {
      {"claim",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         node.claim_deferred(0, no_wait);
       },
       [](World& world) {
         world.lead();
         world.leading->defer(request(20));
       },
       [](World& world) {
         Node member(world.options());
         member.add_device("gpu", 100);
         EXPECT_TRUE(held(world.ours) == 70 || !member.take(0, 1));
         expect_not_held_up([&] { member.claim_deferred(0, long_wait); });
         expect_group_has(member, world, 20);
       }},
      {"claim in vain",
       [](Node& node, World& world) {
         prepared(node, world, 0);
         static_cast<void>(status_of([&] { node.claim_deferred(0, in_vain); }));
       },
       [](World& world) {
         world.lead();
         world.leading->defer(request(60));
       },
       [](World& world) {
         expect_newcomer_served(world);
         Node member(world.options());
         member.add_device("gpu", 100);
         EXPECT_EQ(status_of([&] { member.claim_deferred(0, no_wait); }), Status::busy);
         EXPECT_EQ(member.deferred_bytes(0), 60U) << "left as before";
       }},
  };
}

// Our 50 stay what they are, and all else comes back.
void expect_balance(Node& ours) {
  std::uint64_t rest = 0;
  expect_not_held_up([&] { rest = ours.reserve(request(50, long_wait)); });
  const NodeView view = ours.view();
  ASSERT_EQ(view.reservations.size(), 2U);
  EXPECT_EQ(view.reservations[0].record.size_bytes, 50U);
  EXPECT_EQ(view.reservations[1].record.size_bytes, 50U);
  ours.release(rest);
}

// False when the operation had ended before that step.
bool killed_at(const Operation& operation, std::int64_t at) {
  World world;
  operation.prepare(world);
  world.steps->left = at;
  NodeOptions options = world.options();
  options.steps = {.at = die_at_step, .context = world.steps.get()};
  Child child([&] {
    Node node(options);
    operation.run(node, world);
    return 0;
  });
  const int status = child.wait();
  EXPECT_TRUE(status == -SIGKILL || status == 0) << status;
  operation.check(world);
  world.leading.reset();
  expect_balance(world.ours);
  return status == -SIGKILL;
}

class CrashAtEveryStep : public ::testing::TestWithParam<Operation> {};

TEST_P(CrashAtEveryStep, leaves_the_books_right) {
  std::int64_t at = 0;
  const auto killed = [&] {
    SCOPED_TRACE("step " + std::to_string(at));
    return killed_at(GetParam(), at);
  };
  while (killed() && !HasFailure()) {
    ++at;
    ASSERT_LT(at, 1000);
  }
  EXPECT_GT(at, 4);
  std::cout << at << " kills\n";
}

std::string operation_name(const ::testing::TestParamInfo<Operation>& param) {
  std::string name;
  for (const char letter : std::string_view(param.param.name)) {
    name += letter == ' ' ? '_' : letter;
  }
  std::erase(name, '\'');
  return name;
}

INSTANTIATE_TEST_SUITE_P(OfOne,
                         CrashAtEveryStep,
                         ::testing::ValuesIn(operations_of_one()),
                         operation_name);
INSTANTIATE_TEST_SUITE_P(OnAll,
                         CrashAtEveryStep,
                         ::testing::ValuesIn(operations_on_all()),
                         operation_name);
INSTANTIATE_TEST_SUITE_P(OfAFollowerThatClaims,
                         CrashAtEveryStep,
                         ::testing::ValuesIn(claims()),
                         operation_name);
INSTANTIATE_TEST_SUITE_P(OfAFollower,
                         CrashAtEveryStep,
                         ::testing::ValuesIn(operations_of_a_follower()),
                         operation_name);

}  // namespace
}  // namespace hippogriff::node
