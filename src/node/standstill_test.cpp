// Requests that bar each other by what their contexts take: who goes first, who is refused, and
// that the others go on.
#include "base/error.hpp"
#include "node/account.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

// A command that left memory for its first use, and its one process.
struct Command {
  Command(const NodeOptions& options, std::uint64_t size_bytes) : leader(options) {
    left = leader.defer({.device = leader.add_device("gpu", 100), .size_bytes = size_bytes});
    NodeOptions following = options;
    following.leader = Leader::parse(leader.leader());
    member = std::make_unique<Node>(following);
    account = std::make_unique<Account>(*member, member->add_device("gpu", 100));
  }

  [[nodiscard]] Status claims() const {
    return status_of([this] { account->claim(long_wait); });
  }

  void ends() { leader.release(left); }

  Node leader;
  std::uint64_t left = 0;
  std::unique_ptr<Node> member;
  std::unique_ptr<Account> account;
};

// A context takes 10 of 100.
class StandstillTest : public ::testing::Test {
 protected:
  StandstillTest() : other(place.options(Policy::fifo)) {
    other.add_device("gpu", 100);
    other.set_unreserved(0, {.context_bytes = 10});
  }

  [[nodiscard]] NodeOptions options() const { return place.options(); }

  TemporarySegment place;
  Node other;
};

TEST_F(StandstillTest, a_command_goes_before_a_request_that_its_context_leaves_too_little_for) {
  Command command(options(), 50);
  std::thread large([&] { other.release(other.reserve(request(95, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  EXPECT_EQ(command.claims(), Status::ok);
  EXPECT_EQ(held(other), 50U);
  EXPECT_EQ(waiting(other), 1U) << "and is not refused";
  command.ends();
  large.join();
  EXPECT_EQ(held(other), 0U);
}

TEST_F(StandstillTest, a_command_goes_before_another_that_its_context_leaves_too_little_for) {
  Command small(options(), 50);
  Command large(options(), 95);
  std::thread claims([&] { EXPECT_EQ(large.claims(), Status::ok); });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  EXPECT_EQ(small.claims(), Status::ok);
  EXPECT_EQ(waiting(other), 1U);
  small.ends();
  claims.join();
  EXPECT_EQ(held(other), 95U);
}

TEST_F(StandstillTest, of_two_commands_that_bar_each_other_the_larger_is_refused) {
  Command small(options(), 93);
  Command large(options(), 95);
  other.set_unreserved(0, {.outside_bytes = 20});
  std::atomic<bool> refused{false};
  std::thread claims([&] {
    EXPECT_EQ(large.claims(), Status::out_of_device_memory);
    refused = true;
  });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; })) << "the other may go on";
  EXPECT_EQ(status_of([&] { small.account->claim(long_wait, [&] { return refused.load(); }); }),
            Status::cancelled)
      << "who asks less than another is not refused";
  claims.join();
  other.set_unreserved(0, {});
  EXPECT_EQ(status_of([&] { small.account->claim(no_wait); }), Status::busy)
      << "the other's context";
  large.ends();
  EXPECT_EQ(small.claims(), Status::ok);
  EXPECT_EQ(held(other), 93U);
}

TEST_F(StandstillTest, a_request_that_asks_most_of_those_that_bar_each_other_is_refused) {
  Command command(options(), 92);
  std::string words;
  std::thread large([&] {
    try {
      other.reserve(request(95, long_wait));
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::out_of_device_memory);
      words = error.what();
    }
  });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  const NodeView view = other.view();
  const auto wish = std::ranges::find_if(
      view.reservations, [](const auto& reservation) { return reservation.record.waits(); });
  other.set_unreserved(0, {.early = std::vector<Unreserved::Early>{{wish->record.id, 10}}});
  std::thread claims([&] { EXPECT_EQ(command.claims(), Status::ok); });
  large.join();  // both wait then
  EXPECT_NE(words.find("keep for their contexts"), std::string::npos) << words;
  claims.join();
  EXPECT_EQ(held(other), 92U);
}

TEST_F(StandstillTest, growth_that_waits_is_refused_when_a_command_that_came_later_bars_it) {
  const std::uint64_t mine = other.reserve(request(50));
  Node holder(options());
  const std::uint64_t rest =
      holder.reserve({.device = holder.add_device("gpu", 100), .size_bytes = 20});
  std::thread grows([&] {
    EXPECT_EQ(status_of([&] { other.grow(mine, 92, long_wait); }), Status::out_of_device_memory);
  });
  ASSERT_TRUE(eventually([&] { return waiting(holder) == 1; }));
  Command command(options(), 60);
  std::thread claims([&] { EXPECT_EQ(command.claims(), Status::ok); });
  ASSERT_TRUE(eventually([&] { return waiting(holder) == 2; }));
  holder.release(rest);
  grows.join();
  EXPECT_EQ(held(holder), 50U);
  other.release(mine);
  claims.join();
  EXPECT_EQ(held(holder), 60U);
}

TEST_F(StandstillTest, growth_of_a_command_is_refused_alike) {
  Command growing(options(), 50);
  ASSERT_EQ(growing.claims(), Status::ok);
  const std::uint64_t rest = other.reserve(request(20));
  ASSERT_TRUE(growing.account->take(50));
  std::thread grows([&] {
    std::string why;
    EXPECT_FALSE(growing.account->take_growing(42, long_wait, why));
    EXPECT_NE(why.find("wait for more"), std::string::npos) << why;
  });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  Command command(options(), 60);
  std::thread claims([&] { EXPECT_EQ(command.claims(), Status::ok); });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 2; }));
  other.release(rest);
  grows.join();
  growing.ends();
  claims.join();
  EXPECT_EQ(held(other), 60U);
}

// A command with 40 of each of two devices, all of one of which its process uses.
struct CommandOfTwo {
  CommandOfTwo(const NodeOptions& options, const char* used) : leader(options) {
    left = leader.reserve({.device = leader.add_device("left", 100), .size_bytes = 40});
    leader.reserve({.device = leader.add_device("right", 100), .size_bytes = 40});
    NodeOptions following = options;
    following.leader = Leader::parse(leader.leader());
    member = std::make_unique<Node>(following);
    account = std::make_unique<Account>(*member, member->add_device(used, 100));
    EXPECT_TRUE(account->take(40));
  }

  Node leader;
  std::uint64_t left = 0;
  std::unique_ptr<Node> member;
  std::unique_ptr<Account> account;
};

TEST(Growth, that_commands_wait_for_in_a_circle_over_devices_is_refused_to_the_last) {
  const TemporarySegment place;
  const CommandOfTwo first(place.options(), "left");
  CommandOfTwo second(place.options(), "right");
  std::thread grows([&] {
    std::string why;
    EXPECT_TRUE(first.account->take_growing(30, long_wait, why)) << why;
  });
  ASSERT_TRUE(eventually([&] { return waiting(second.leader) == 1; }));
  std::string why;
  EXPECT_FALSE(second.account->take_growing(30, long_wait, why));
  EXPECT_NE(why.find("wait for more"), std::string::npos) << why;
  second.leader.release(second.left);
  grows.join();
}

// Without that: the second waits for one that waits for nobody.
TEST(Growth, of_commands_on_two_devices_waits_where_one_can_go_on) {
  const TemporarySegment place;
  const CommandOfTwo first(place.options(), "left");
  CommandOfTwo second(place.options(), "left");
  Node holder(place.options());
  const std::uint64_t rest =
      holder.reserve({.device = holder.add_device("left", 100), .size_bytes = 20});
  std::thread grows([&] {
    std::string why;
    EXPECT_TRUE(first.account->take_growing(20, long_wait, why)) << why;
  });
  ASSERT_TRUE(eventually([&] { return waiting(holder) == 1; }));
  std::thread grows_later([&] {
    std::string why;
    EXPECT_FALSE(second.account->take_growing(30, milliseconds(200), why));
    EXPECT_NE(why.find("not free"), std::string::npos) << why;
  });
  grows_later.join();
  holder.release(rest);
  grows.join();
}

}  // namespace
}  // namespace hippogriff::node
