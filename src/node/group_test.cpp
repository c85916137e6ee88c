// Reservations that several processes use together, that outlive exec, and that cover what a
// process takes.
#include "base/error.hpp"
#include "node/account.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

NodeOptions following(const TemporarySegment& place, const std::string& leader) {
  NodeOptions options = place.options();
  options.leader = Leader::parse(leader);
  return options;
}

TEST(Leader, is_parsed_from_its_text_alone) {
  EXPECT_EQ(Leader::parse("3:17")->client, 3U);
  EXPECT_EQ(Leader::parse("3:17")->term, 17U);
  EXPECT_EQ(Leader::parse(Leader{.client = 255, .term = 4}.text())->term, 4U);
  for (const char* text : {"",
                           "3",
                           "3:",
                           ":17",
                           "3:17 ",
                           " 3:17",
                           "-1:0",
                           "256:0",
                           "3:99999999999",
                           "3:17:1",
                           "a:b"}) {
    EXPECT_FALSE(Leader::parse(text)) << text;
  }
}

class GroupTest : public ::testing::Test {
 protected:
  GroupTest() : node(place.options()) {
    device = node.add_device("gpu", 100);
    node.reserve({.device = device, .size_bytes = 60});
    leader = node.leader();
  }

  TemporarySegment place;
  Node node;
  std::uint32_t device = 0;
  std::string leader;
};

TEST_F(GroupTest, members_take_no_more_than_the_leader_reserved) {
  Node first(following(place, leader));
  Node second(following(place, leader));
  const std::uint32_t of_first = first.add_device("gpu", 100);
  const std::uint32_t of_second = second.add_device("gpu", 100);
  EXPECT_TRUE(first.follows());
  EXPECT_FALSE(node.follows());
  EXPECT_EQ(first.granted_bytes(of_first), 60U);
  EXPECT_TRUE(first.take(of_first, 40));
  EXPECT_FALSE(second.take(of_second, 21));
  EXPECT_TRUE(second.take(of_second, 20));
  EXPECT_FALSE(first.take(of_first, 1));
  EXPECT_EQ(node.group_used_bytes(device), 60U);
  first.give(of_first, 10);
  EXPECT_TRUE(second.take(of_second, 10));
  EXPECT_EQ(held(node), 60U) << "members take nothing beside it";
}

TEST_F(GroupTest, what_killed_members_had_comes_back) {
  Node ours(following(place, leader));
  const std::uint32_t mine = ours.add_device("gpu", 100);
  Child member([&] {
    Node theirs(following(place, leader));
    theirs.take(theirs.add_device("gpu", 100), 50);
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return ours.group_used_bytes(mine) == 50; }));
  EXPECT_FALSE(ours.take(mine, 20));
  member.send(SIGKILL);
  member.wait();
  EXPECT_TRUE(ours.take(mine, 20));
  EXPECT_EQ(ours.group_used_bytes(mine), 20U);
}

TEST_F(GroupTest, members_that_end_well_give_all_back) {
  {
    Node member(following(place, leader));
    EXPECT_TRUE(member.take(member.add_device("gpu", 100), 50));
  }
  Node next(following(place, leader));  // in the same slot
  const std::uint32_t mine = next.add_device("gpu", 100);
  EXPECT_EQ(next.group_used_bytes(mine), 0U);
  EXPECT_TRUE(next.take(mine, 60));
}

TEST_F(GroupTest, a_dead_or_invented_leader_is_not_followed) {
  EXPECT_FALSE(Node(following(place, "9:1")).follows());
  std::string gone;
  {
    Node other(place.options());
    gone = other.leader();
  }
  Node late(following(place, gone));
  EXPECT_FALSE(late.follows());
  EXPECT_FALSE(late.take(late.add_device("gpu", 100), 1)) << "it has reserved nothing itself";
}

// Takes and gives back at random; how often the group used more than it has.
int take_and_give(Node& member, std::uint32_t device, unsigned seed) {
  std::mt19937_64 random(seed);
  int failures = 0;
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::uint64_t size = 1 + random() % 40;
    if (member.take(device, size)) {
      failures += member.group_used_bytes(device) > 60 ? 1 : 0;
      member.give(device, size);
    }
  }
  return failures;
}

// Threads of one process that follows the leader; 0 when the group never used more than it has.
int threads_that_take_and_give(const TemporarySegment& place,
                               const std::string& leader,
                               unsigned seed) {
  Node member(following(place, leader));
  const std::uint32_t mine = member.add_device("gpu", 100);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (unsigned thread = 0; thread < 2; ++thread) {
    threads.emplace_back([&, thread] { failures += take_and_give(member, mine, seed + thread); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return failures == 0 ? 0 : 1;
}

TEST_F(GroupTest, many_processes_and_threads_never_use_more_than_there_is) {
  std::vector<Child> children;
  for (unsigned child = 0; child < 4; ++child) {
    children.emplace_back(
        [&, child] { return threads_that_take_and_give(place, leader, child * 10); });
  }
  for (Child& child : children) {
    EXPECT_EQ(child.wait(), 0);
  }
  EXPECT_EQ(node.group_used_bytes(device), 0U);
}

TEST_F(GroupTest, the_leaders_reservation_grows_for_its_members) {
  Node member(following(place, leader));
  Account account(member, member.add_device("gpu", 100));
  std::string why;
  EXPECT_TRUE(account.take_growing(80, milliseconds(0), why)) << why;
  EXPECT_EQ(held(node), 80U);
  EXPECT_EQ(node.granted_bytes(device), 80U);
  EXPECT_FALSE(account.take_growing(21, long_wait, why));
  EXPECT_NE(why.find("the device has"), std::string::npos) << why;
  account.give(80);
  EXPECT_TRUE(account.take(80)) << "it stays grown";
}

TEST_F(GroupTest, members_wait_for_the_growth_they_share) {
  Node other(place.options());
  const std::uint64_t others =
      other.reserve({.device = other.add_device("gpu", 100), .size_bytes = 40});
  Node first(following(place, leader));
  Node second(following(place, leader));
  Account of_first(first, first.add_device("gpu", 100));
  Account of_second(second, second.add_device("gpu", 100));
  ASSERT_TRUE(of_first.take(60));
  std::string why;
  EXPECT_FALSE(of_first.take_growing(5, milliseconds(20), why));
  EXPECT_EQ(waiting(node), 0U) << "taken back";
  std::atomic<int> granted{0};
  std::thread one([&] {
    std::string reason;
    granted += of_first.take_growing(15, long_wait, reason) ? 1 : 0;
  });
  std::thread two([&] {
    std::string reason;
    granted += of_second.take_growing(15, long_wait, reason) ? 1 : 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  other.release(others);
  one.join();
  two.join();
  EXPECT_EQ(granted, 2);
  EXPECT_EQ(held(node), 90U);
}

TEST_F(GroupTest, growth_that_a_killed_member_waited_for_holds_nobody_up) {
  static std::atomic<int> asked{0};
  NodeOptions counted = place.options();
  counted.steps.at = [](void*, const char* where) {
    asked += std::string_view(where) == "asking after all" ? 1 : 0;
  };
  Node other(counted);
  const std::uint32_t of_other = other.add_device("gpu", 100);
  const std::uint64_t others = other.reserve({.device = of_other, .size_bytes = 30});
  Child member([&] {
    Node theirs(following(place, leader));
    Account account(theirs, theirs.add_device("gpu", 100));
    std::string why;
    return account.take_growing(90, long_wait, why) ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  member.send(SIGKILL);
  member.wait();
  asked = 0;
  other.release(others);
  EXPECT_EQ(asked, 1);
  other.reserve({.device = of_other, .size_bytes = 40, .timeout = long_wait});
  EXPECT_EQ(held(node), 100U);
}

TEST_F(GroupTest, who_waits_asks_after_all_others_only_to_change_something) {
  Node other(place.options());
  const std::uint64_t rest =
      other.reserve({.device = other.add_device("gpu", 100), .size_bytes = 40});
  const std::uint64_t all =
      other.reserve({.device = other.add_device("left", 100), .size_bytes = 100});
  node.defer({.device = node.add_device("left", 100), .size_bytes = 100});
  static std::atomic<int> asked{0};
  NodeOptions counted = following(place, leader);
  counted.steps.at = [](void*, const char* where) {
    asked += std::string_view(where) == "asking after all" ? 1 : 0;
  };
  Node member(counted);
  Account grown(member, member.add_device("gpu", 100));
  Account left(member, member.add_device("left", 100));
  std::atomic<int> looks{0};
  const auto count_looks = [&] {
    ++looks;
    return false;
  };
  const auto asks_no_more = [&] {
    const auto look_on = [&] { return eventually([&, to = looks + 4] { return looks >= to; }); };
    const bool began = look_on();
    const int before = asked;
    return began && look_on() && asked == before;
  };
  std::thread claims([&] { left.claim(long_wait, count_looks); });
  EXPECT_TRUE(asks_no_more());
  other.release(all);
  claims.join();
  std::thread grows([&] {
    std::string why;
    EXPECT_TRUE(grown.take_growing(70, long_wait, why, count_looks)) << why;
  });
  EXPECT_TRUE(asks_no_more());
  other.release(rest);
  grows.join();
}

TEST_F(GroupTest, growth_that_can_never_end_is_refused_to_the_last_who_asked) {
  Node other(place.options());
  const std::uint32_t of_other = other.add_device("gpu", 100);
  const std::uint64_t others = other.reserve({.device = of_other, .size_bytes = 40});
  std::thread grows([&] { other.grow(others, 60, long_wait); });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  Node member(following(place, leader));
  Account account(member, member.add_device("gpu", 100));
  std::string why;
  EXPECT_FALSE(account.take_growing(61, long_wait, why));
  EXPECT_NE(why.find("all who hold its memory wait for more"), std::string::npos) << why;
  node.shrink(1, 40);
  grows.join();
}

TEST_F(GroupTest, growth_ends_when_the_group_itself_has_enough) {
  Node other(place.options());
  other.reserve({.device = other.add_device("gpu", 100), .size_bytes = 40});
  Node first(following(place, leader));
  Node second(following(place, leader));
  Account of_first(first, first.add_device("gpu", 100));
  Account of_second(second, second.add_device("gpu", 100));
  ASSERT_TRUE(of_first.take(60));
  std::thread waits([&] {
    std::string why;
    EXPECT_TRUE(of_second.take_growing(20, long_wait, why)) << why;
  });
  ASSERT_TRUE(eventually([&] { return waiting(node) == 1; }));
  of_first.give(30);
  waits.join();
  EXPECT_EQ(waiting(node), 0U);
  EXPECT_EQ(held(node), 100U);
}

TEST(Group, a_leaders_reservation_lasts_as_long_as_a_follower) {
  const TemporarySegment place;
  Node node(place.options());
  const std::uint32_t device = node.add_device("gpu", 100);
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  Child leads([&] {
    Node theirs(place.options());
    theirs.reserve({.device = theirs.add_device("gpu", 100), .size_bytes = 70});
    const std::string words = theirs.leader();
    static_cast<void>(::write(ends[1], words.data(), words.size()));
    ::pause();
    return 0;
  });
  std::array<char, 64> words{};
  ASSERT_GT(::read(ends[0], words.data(), words.size() - 1), 0);
  Child follows([&] {
    Node theirs(following(place, words.data()));
    theirs.add_device("gpu", 100);
    ::pause();
    return theirs.follows() ? 0 : 1;
  });
  ASSERT_TRUE(eventually([&] { return node.view().clients.size() == 3; }));
  leads.send(SIGKILL);
  leads.wait();
  EXPECT_EQ(held(node), 70U);
  Node another(place.options());
  EXPECT_EQ(held(another), 70U) << "nobody takes the leader's slot";
  follows.send(SIGKILL);
  follows.wait();
  node.reserve({.device = device, .size_bytes = 100, .timeout = long_wait});
  ::close(ends[0]);
  ::close(ends[1]);
}

// A child that reserves 70 of 100, hands over, and goes on as `script`.
Child handed_over(const TemporarySegment& place, const char* script) {
  return Child([&place, script] {
    auto* const theirs = new Node(place.options());
    theirs->reserve({.device = theirs->add_device("gpu", 100), .size_bytes = 70});
    theirs->hand_over();
    ::execl("/bin/sh", "sh", "-c", script, nullptr);
    return 98;
  });
}

class HandOverTest : public ::testing::TestWithParam<const char*> {};

TEST_P(HandOverTest, keeps_reservations_through_exec_until_the_program_ends) {
  const TemporarySegment place;
  Node node(place.options());
  const std::uint32_t device = node.add_device("gpu", 100);
  Child program = handed_over(place, GetParam());
  ASSERT_TRUE(eventually([&] { return held(node) == 70; }));
  ::usleep(100'000);  // it is sh by now, most likely
  EXPECT_EQ(status_of([&] { node.reserve({.device = device, .size_bytes = 31}); }), Status::busy);
  Node another(place.options());  // whoever comes takes another slot
  EXPECT_EQ(held(another), 70U);
  program.send(SIGKILL);
  program.wait();
  node.reserve({.device = device, .size_bytes = 100, .timeout = long_wait});
}

INSTANTIATE_TEST_SUITE_P(
    Programs,
    HandOverTest,
    ::testing::Values("exec sleep 60",
                      "for fd in 3 4 5 6 7 8 9; do eval \"exec $fd>&-\"; done; exec sleep 60"));

TEST(HandOver, lasts_as_long_as_a_child_of_the_program) {
  const TemporarySegment place;
  Node node(place.options());
  const std::uint32_t device = node.add_device("gpu", 100);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string script = "sh -c 'read line <&" + std::to_string(ends[0]) + "' & exit 0";
  Child program = handed_over(place, script.c_str());
  ASSERT_TRUE(eventually([&] { return held(node) == 70; }));
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(status_of([&] { node.reserve({.device = device, .size_bytes = 31}); }), Status::busy);
  EXPECT_EQ(::write(ends[1], "\n", 1), 1);
  node.reserve({.device = device, .size_bytes = 100, .timeout = long_wait});
  ::close(ends[0]);
  ::close(ends[1]);
}

class AccountTest : public ::testing::Test {
 protected:
  AccountTest() : node(place.options()), account(node, node.add_device("gpu", 100)) {}

  TemporarySegment place;
  Node node;
  Account account;
};

TEST_F(AccountTest, covers_what_is_taken_and_no_more) {
  EXPECT_TRUE(account.take(30));
  EXPECT_EQ(held(node), 30U);
  EXPECT_TRUE(account.take(50));
  EXPECT_FALSE(account.take(21));
  EXPECT_EQ(held(node), 80U);
  account.give(60);
  EXPECT_EQ(held(node), 20U);
  account.give(20);
  EXPECT_TRUE(node.view().reservations.empty());
}

TEST_F(AccountTest, refuses_sizes_beyond_all_devices) {
  EXPECT_TRUE(account.take(1));
  EXPECT_FALSE(account.take(UINT64_MAX));
  EXPECT_FALSE(account.take(capacity_bytes_max));
  EXPECT_EQ(account.used_bytes(), 1U);
  account.give(1);
}

TEST_F(AccountTest, does_not_cover_what_a_reservation_holds) {
  const std::uint64_t handle = account.reserve({.size_bytes = 50});
  EXPECT_TRUE(account.take(40));
  EXPECT_EQ(held(node), 50U);
  EXPECT_TRUE(account.take(30));
  EXPECT_EQ(held(node), 70U);
  account.resize(handle, 80, milliseconds(0));
  EXPECT_EQ(held(node), 80U);
  EXPECT_EQ(status_of([&] { account.resize(handle, 69, milliseconds(0)); }), Status::busy);
  account.resize(handle, 70, milliseconds(0));
  account.give(70);
  EXPECT_EQ(held(node), 70U);
  account.release(handle);
  EXPECT_TRUE(node.view().reservations.empty());
}

TEST_F(AccountTest, memory_in_use_stays_reserved_after_a_release) {
  const std::uint64_t handle = account.reserve({.size_bytes = 50});
  EXPECT_TRUE(account.take(40));
  account.release(handle);
  EXPECT_EQ(held(node), 40U);
  EXPECT_EQ(status_of([&] { account.release(handle); }), Status::invalid_argument);
  account.give(15);
  EXPECT_EQ(held(node), 25U);
  account.give(25);
  EXPECT_TRUE(node.view().reservations.empty());
}

TEST_F(AccountTest, of_a_follower_takes_of_the_leaders_reservation) {
  node.reserve({.size_bytes = 60});
  Node member(following(place, node.leader()));
  Account theirs(member, member.add_device("gpu", 100));
  EXPECT_TRUE(theirs.take(60));
  EXPECT_FALSE(theirs.take(1)) << "40 are free, but not reserved";
  EXPECT_EQ(held(node), 60U);
  theirs.give(60);
  EXPECT_EQ(node.group_used_bytes(0), 0U);
}

TEST_F(AccountTest, of_a_follower_reserves_within_the_leaders_reservation) {
  node.reserve({.size_bytes = 60});
  Node member(following(place, node.leader()));
  Account theirs(member, member.add_device("gpu", 100));
  EXPECT_EQ(status_of([&] { theirs.reserve({.size_bytes = 61}); }), Status::out_of_device_memory);
  const std::uint64_t handle = theirs.reserve({.size_bytes = 40});
  EXPECT_TRUE(theirs.take(50));
  EXPECT_EQ(node.group_used_bytes(0), 50U);
  EXPECT_EQ(status_of([&] { theirs.resize(handle, 61, milliseconds(5)); }),
            Status::out_of_device_memory);
  theirs.give(50);
  EXPECT_EQ(node.group_used_bytes(0), 40U);
  theirs.resize(handle, 30, milliseconds(0));
  Node second(following(place, node.leader()));
  Account other(second, second.add_device("gpu", 100));
  EXPECT_TRUE(other.take(30));
  EXPECT_EQ(status_of([&] { theirs.resize(handle, 31, milliseconds(0)); }), Status::busy);
  EXPECT_EQ(status_of([&] { theirs.resize(handle, 31, milliseconds(5)); }), Status::timed_out);
  std::thread waiter([&] { theirs.resize(handle, 45, long_wait); });
  other.give(30);
  waiter.join();
  EXPECT_EQ(node.group_used_bytes(0), 45U);
  theirs.release(handle);
  EXPECT_EQ(node.group_used_bytes(0), 0U);
}

TEST_F(AccountTest, holds_what_is_used_or_reserved_whatever_the_order) {
  std::mt19937_64 random(7);
  std::vector<std::uint64_t> taken;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> reserved;
  std::uint64_t used = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    const std::uint64_t size = 1 + random() % 30;
    if (const auto kind = random() % 4; kind == 0 && account.take(size)) {
      taken.push_back(size);
      used += size;
    } else if (kind == 1 && !taken.empty()) {
      account.give(taken.back());
      used -= taken.back();
      taken.pop_back();
    } else if (kind == 2) {
      static_cast<void>(
          status_of([&] { reserved.emplace_back(account.reserve({.size_bytes = size}), size); }));
    } else if (kind == 3 && !reserved.empty()) {
      account.release(reserved.back().first);
      reserved.pop_back();
    }
    std::uint64_t wished = 0;
    for (const auto& [handle, bytes] : reserved) {
      wished += bytes;
    }
    ASSERT_EQ(held(node), std::max(used, wished)) << "turn " << turn;
    ASSERT_EQ(account.used_bytes(), used);
  }
}

}  // namespace
}  // namespace hippogriff::node
