// Clients of a server that use one reservation together, as the processes of a command do.
#include "noded/shared_run.hpp"

#include "base/error.hpp"
#include "node/account.hpp"
#include "noded/connection.hpp"
#include "noded/open_node.hpp"
#include "noded/protocol.hpp"
#include "noded/server_place.hpp"
#include "noded/socket.hpp"
#include "testing/node_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::Answers;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::soon;
using hippogriff::testing::status_of;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

TEST(RunToken, is_parsed_from_its_text_alone_and_no_two_are_alike) {
  std::set<std::string> texts;
  for (int count = 0; count < 100; ++count) {
    const RunToken token = RunToken::draw();
    ASSERT_EQ(token.text().size(), run_token_digits);
    ASSERT_TRUE(RunToken::parse(token.text()) == token);
    texts.insert(token.text());
  }
  EXPECT_EQ(texts.size(), 100U);
  const std::string good = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(RunToken::parse(good)->text(), good);
  for (const std::string& bad : {std::string(),
                                 good.substr(1),
                                 good + "0",
                                 "A" + good.substr(1),
                                 "-" + good.substr(1),
                                 " " + good.substr(1),
                                 "g" + good.substr(1),
                                 std::string("3:17")}) {
    EXPECT_FALSE(RunToken::parse(bad)) << bad;
  }
}

TEST(OpenNode, knows_the_words_of_servers_and_segments_apart) {
  const std::string token = RunToken::draw().text();
  EXPECT_TRUE(can_name_leader("unix:/path", token));
  EXPECT_FALSE(can_name_leader("unix:/path", "3:17"));
  EXPECT_FALSE(can_name_leader("", token));
  EXPECT_TRUE(can_name_leader("", "3:17"));
  EXPECT_FALSE(can_name_leader("off", "3:17"));
}

// Each of them has died while it waited for the other.
TEST(SharedRun, members_that_have_died_do_not_wait_for_each_other) {
  const SocketPlace place;
  SharedRun run(0, std::make_shared<node::Node>(place.options().node));
  std::array<std::array<int, 2>, 2> pairs{};
  for (auto& pair : pairs) {
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    run.enter({.socket = pair[0]});
    ::close(pair[1]);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(run.await_the_dead(pairs[0][0], run.left_count(), begin + long_wait));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, soon);
  for (auto& pair : pairs) {
    ::close(pair[0]);
  }
}

class SharedRunTest : public ::testing::Test {
 protected:
  SharedRunTest() : server(std::make_unique<RunningServer>(place.options())) {
    leading = client("");
    handle = leading->reserve(request(60));
    token = leading->leader();
  }

  [[nodiscard]] std::unique_ptr<Connection> client(const std::string& words) const {
    auto made =
        std::make_unique<Connection>(ConnectionOptions{.path = place.path(), .reservation = words});
    made->add_device("gpu", 100);
    return made;
  }

  [[nodiscard]] std::unique_ptr<Connection> member() const { return client(token); }

  // Takes that much, says so by a byte, and stays.
  [[nodiscard]] Child member_with(std::uint64_t size_bytes, int told) const {
    return Child([this, size_bytes, told] {
      const auto theirs = member();
      const char answer = theirs->take(0, size_bytes) ? 'y' : 'n';
      static_cast<void>(::write(told, &answer, 1));
      ::pause();
      return 0;
    });
  }

  SocketPlace place;
  std::unique_ptr<RunningServer> server;
  std::unique_ptr<Connection> leading;
  std::uint64_t handle = 0;
  std::string token;
};

TEST_F(SharedRunTest, clients_that_share_have_no_more_than_was_reserved) {
  const auto first = member();
  const auto second = member();
  EXPECT_TRUE(first->follows());
  EXPECT_FALSE(leading->follows());
  EXPECT_EQ(first->granted_bytes(0), 60U);
  EXPECT_TRUE(first->take(0, 40));
  EXPECT_FALSE(second->take(0, 21));
  EXPECT_TRUE(second->take(0, 20));
  EXPECT_EQ(second->group_used_bytes(0), 60U);
  first->give(0, 10);
  EXPECT_FALSE(second->take(0, 11));
  EXPECT_TRUE(second->take(0, 10));
  EXPECT_FALSE(second->take(0, UINT64_MAX));
  EXPECT_FALSE(second->take(1, 1)) << "a device that it did not name";
  EXPECT_EQ(held(*leading), 60U);
}

TEST_F(SharedRunTest, an_account_behind_a_server_is_held_to_what_all_have) {
  const auto first = member();
  const auto second = member();
  node::Account ours(*first, 0);
  node::Account theirs(*second, 0);
  ASSERT_TRUE(ours.follows());
  EXPECT_EQ(theirs.limit_bytes(), 60U);
  EXPECT_TRUE(ours.take(50));
  EXPECT_FALSE(theirs.take(11));
  const std::uint64_t part = theirs.reserve({.size_bytes = 10});
  EXPECT_EQ(status_of([&] { theirs.reserve({.size_bytes = 1, .timeout = milliseconds(100)}); }),
            Status::timed_out);
  EXPECT_EQ(status_of([&] { theirs.reserve({.size_bytes = 61}); }), Status::out_of_device_memory);
  theirs.release(part);
  EXPECT_TRUE(ours.take(10));
}

// Each time at once, without asking twice: whoever reaped it may count on that.
TEST_F(SharedRunTest, what_a_killed_client_had_is_there_for_the_next_request) {
  const auto ours = member();
  const Answers answers;
  for (int round = 0; round < 50; ++round) {
    Child child = member_with(60, answers.to());
    ASSERT_EQ(answers.next(1), "y") << round;
    EXPECT_FALSE(ours->take(0, 1));
    child.send(SIGKILL);
    EXPECT_EQ(child.wait(), -SIGKILL);
    ASSERT_TRUE(ours->take(0, 60)) << round;
    ours->give(0, 60);
  }
}

TEST_F(SharedRunTest, what_a_client_that_leaves_had_is_there_when_it_has_left) {
  const auto ours = member();
  auto theirs = member();
  EXPECT_TRUE(theirs->take(0, 60));
  theirs.reset();
  EXPECT_EQ(ours->group_used_bytes(0), 0U);
  EXPECT_TRUE(ours->take(0, 60));
}

TEST_F(SharedRunTest, the_reservation_lasts_as_long_as_any_that_uses_it) {
  node::Node watcher(place.options().node);
  auto first = member();
  EXPECT_TRUE(first->take(0, 40));
  leading.reset();
  EXPECT_EQ(held(watcher), 60U);
  auto second = member();
  ASSERT_TRUE(second->follows()) << "it can still be found";
  EXPECT_FALSE(second->take(0, 21));
  EXPECT_TRUE(second->take(0, 20));
  first.reset();
  EXPECT_EQ(held(watcher), 60U);
  second.reset();
  EXPECT_EQ(held(watcher), 0U);
  EXPECT_FALSE(client(token)->follows()) << "the words have become nobody's";
}

TEST_F(SharedRunTest, the_reservation_of_a_leader_that_was_killed_ends_with_the_last) {
  const Answers answers;
  node::Node watcher(place.options().node);
  leading->release(handle);
  Child leader([&] {
    const auto ours = client("");
    ours->reserve(request(50));
    const std::string words = ours->leader();
    static_cast<void>(::write(answers.to(), words.data(), words.size()));
    ::pause();
    return 0;
  });
  auto ours = client(answers.next(run_token_digits));
  ASSERT_TRUE(ours->follows());
  leader.send(SIGKILL);
  leader.wait();
  ::usleep(200'000);
  EXPECT_TRUE(ours->take(0, 50));
  EXPECT_EQ(held(watcher), 50U);
  ours.reset();
  EXPECT_EQ(held(watcher), 0U);
}

TEST_F(SharedRunTest, words_that_name_nobody_make_nobody_a_follower) {
  for (const std::string& words : {RunToken::draw().text(), std::string("1:1"), token + "0"}) {
    const auto stranger = client(words);
    EXPECT_FALSE(stranger->follows());
    EXPECT_FALSE(stranger->take(0, 1));
    EXPECT_EQ(stranger->granted_bytes(0), 0U);
    EXPECT_EQ(stranger->group_used_bytes(0), 0U);
    stranger->release(stranger->reserve(request(40)));
    EXPECT_EQ(status_of([&] { stranger->grow_group(0, 1, no_wait); }),
              Status::out_of_device_memory);
  }
}

TEST_F(SharedRunTest, two_commands_know_nothing_of_each_other) {
  const auto other = client("");
  other->reserve(request(40));
  const auto theirs = client(other->leader());
  EXPECT_NE(other->leader(), token);
  EXPECT_TRUE(theirs->take(0, 40));
  const auto ours = member();
  EXPECT_EQ(ours->group_used_bytes(0), 0U);
  EXPECT_TRUE(ours->take(0, 60));
  EXPECT_FALSE(theirs->take(0, 1));
}

TEST_F(SharedRunTest, nobody_gives_back_what_others_have) {
  const auto first = member();
  const auto second = member();
  EXPECT_TRUE(first->take(0, 50));
  EXPECT_TRUE(second->take(0, 5));
  second->give(0, 55);
  second->give(0, UINT64_MAX);
  EXPECT_EQ(first->group_used_bytes(0), 50U);
  EXPECT_FALSE(second->take(0, 11));
}

TEST_F(SharedRunTest, a_command_within_a_command_has_the_outer_ones_memory) {
  auto inner = member();
  EXPECT_TRUE(inner->take(0, 30));
  EXPECT_EQ(inner->leader(), token);
  EXPECT_EQ(inner->group_used_bytes(0), 0U) << "it is for those whom it starts";
  inner->give(0, 30);
  EXPECT_TRUE(member()->take(0, 60));
}

TEST_F(SharedRunTest, the_reservation_grows_for_those_who_share_it) {
  const auto ours = member();
  EXPECT_TRUE(ours->take(0, 60));
  EXPECT_EQ(status_of([&] { ours->grow_group(0, 41, no_wait); }), Status::out_of_device_memory);
  const auto other = client("");
  const std::uint64_t theirs = other->reserve(request(40));
  EXPECT_EQ(status_of([&] { ours->grow_group(0, 10, no_wait); }), Status::busy);
  std::atomic<bool> interrupted{false};
  std::thread gives_up([&] {
    EXPECT_EQ(
        status_of([&] { ours->grow_group(0, 10, long_wait, [&] { return interrupted.load(); }); }),
        Status::busy);
  });
  EXPECT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  interrupted = true;
  gives_up.join();
  std::thread grows([&] {
    std::string why;
    node::Account account(*ours, 0);
    EXPECT_TRUE(account.take_growing(10, long_wait, why)) << why;
  });
  EXPECT_TRUE(eventually([&] { return waiting(*other) == 1; }));
  other->release(theirs);
  grows.join();
  EXPECT_EQ(ours->granted_bytes(0), 70U);
  EXPECT_EQ(held(*other), 70U);
}

TEST_F(SharedRunTest, a_reservation_that_was_left_is_taken_at_its_first_use) {
  const auto late = client("");
  late->defer({.device = 0, .size_bytes = 50});
  EXPECT_EQ(status_of([&] { late->defer({.device = 0, .size_bytes = 1}); }),
            Status::invalid_argument);
  const std::string words = late->leader();
  const auto first = client(words);
  const auto second = client(words);
  node::Account ours(*first, 0);
  node::Account theirs(*second, 0);
  ASSERT_TRUE(ours.follows());
  EXPECT_EQ(ours.limit_bytes(), 50U);
  EXPECT_FALSE(ours.take(1));
  EXPECT_EQ(status_of([&] { ours.claim(no_wait); }), Status::busy);
  EXPECT_EQ(status_of([&] { ours.claim(milliseconds(20)); }), Status::timed_out);
  std::thread other([&] { EXPECT_EQ(status_of([&] { theirs.claim(long_wait); }), Status::ok); });
  EXPECT_TRUE(eventually([&] { return waiting(*leading) == 1; }));
  leading->release(handle);
  ours.claim(long_wait);
  other.join();
  EXPECT_TRUE(ours.take(30));
  EXPECT_FALSE(theirs.take(21));
  EXPECT_TRUE(theirs.take(20));
}

TEST_F(SharedRunTest, follows_nobody_once_the_server_has_gone) {
  const auto ours = member();
  EXPECT_TRUE(ours->take(0, 10));
  server.reset();
  EXPECT_FALSE(ours->take(0, 10));
  EXPECT_FALSE(ours->follows());
  ours->give(0, 10);
  EXPECT_EQ(ours->granted_bytes(0), 0U);
  EXPECT_EQ(status_of([&] { ours->grow_group(0, 10, long_wait); }), Status::io_error);
}

TEST_F(SharedRunTest, a_forked_child_has_nothing_of_its_parents) {
  const auto ours = member();
  EXPECT_TRUE(ours->take(0, 10));
  Child child([&] {
    ours->give(0, 10);
    return ours->take(0, 10) || status_of([&] { ours->leader(); }) != Status::forked ? 1 : 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_EQ(ours->group_used_bytes(0), 10U);
}

TEST_F(SharedRunTest, threads_of_a_client_take_and_give_at_once) {
  const auto ours = member();
  std::vector<std::thread> threads;
  std::atomic<std::uint64_t> used{0};
  const auto take_and_give = [&] {
    for (int round = 0; round < 200; ++round) {
      if (ours->take(0, 20)) {
        EXPECT_LE(used.fetch_add(20) + 20, 60U);
        used -= 20;
        ours->give(0, 20);
      }
    }
  };
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back(take_and_give);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(ours->group_used_bytes(0), 0U);
}

// Takes and gives by chance until it is killed.
int work(Connection& node, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (std::uint64_t used = 0; node.follows();) {
    const std::uint64_t size = 1 + random() % 30;
    if (random() % 2 == 0 && node.take(0, size)) {
      used += size;
    } else if (used != 0) {
      const std::uint64_t given = std::min(used, size);
      node.give(0, given);
      used -= given;
    }
  }
  return 1;
}

TEST_F(SharedRunTest, clients_that_are_killed_at_random_moments_leave_nothing_taken) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const auto ours = member();
  std::vector<std::unique_ptr<Child>> children(5);
  for (std::uint64_t kill = 0; kill < 200; ++kill) {
    auto& child = children[random() % children.size()];
    if (child != nullptr) {
      child->send(SIGKILL);
      EXPECT_EQ(child->wait(), -SIGKILL) << "it failed by itself";
    }
    child = std::make_unique<Child>([&] { return work(*member(), seed + kill); });
    ::usleep(static_cast<useconds_t>(random() % 3000));
    EXPECT_LE(ours->group_used_bytes(0), 60U);
  }
  children.clear();
  EXPECT_TRUE(ours->take(0, 60)) << "all that they had, and nothing else";
  EXPECT_FALSE(ours->take(0, 1));
  leading.reset();
  ours->give(0, 60);
  EXPECT_EQ(held(*ours), 60U);
}

// A request of any kind that does not wait, whose numbers may be anything.
RequestMessage random_request(std::mt19937_64& random, std::uint64_t id) {
  constexpr std::array operations = {Operation::share,
                                     Operation::take,
                                     Operation::give,
                                     Operation::granted,
                                     Operation::group_used,
                                     Operation::defer,
                                     Operation::deferred,
                                     Operation::reserve,
                                     Operation::release,
                                     Operation::shrink,
                                     Operation::view};
  RequestMessage request{.operation = operations.at(random() % operations.size()), .id = id};
  const std::uint32_t device =
      random() % 8 == 0 ? UINT32_MAX : static_cast<std::uint32_t>(random() % 2);
  const std::uint64_t size_bytes = random() % 8 == 0 ? random() : random() % 30;
  switch (request.operation) {
    case Operation::shrink:
      request.size_bytes = size_bytes;
      [[fallthrough]];
    case Operation::release:
      request.handle = random() % 4;
      break;
    case Operation::share:
    case Operation::view:
      break;
    case Operation::granted:
    case Operation::group_used:
    case Operation::deferred:
      request.device = device;
      break;
    default:
      request.device = device;
      request.size_bytes = size_bytes;
  }
  return request;
}

// Ends well when it is answered, whatever the answer is.
::testing::AssertionResult is_answered(int socket, const RequestMessage& request) {
  const auto by = std::chrono::steady_clock::now() + soon;
  std::array<std::byte, sizeof(ReplyMessage)> bytes{};
  ReplyMessage reply;
  if (send_all(socket, std::as_bytes(std::span(&request, 1)), by) != 0 ||
      receive_all(socket, bytes, by) != 0 || !decode_reply(bytes, reply) ||
      reply.id != request.id) {
    return ::testing::AssertionFailure() << "operation " << static_cast<int>(request.operation);
  }
  std::vector<std::byte> rest(view_bytes(reply));
  return receive_all(socket, rest, by) == 0 ? ::testing::AssertionSuccess()
                                            : ::testing::AssertionFailure() << "half a view";
}

TEST_F(SharedRunTest, whatever_a_client_asks_in_whatever_order_the_others_keep_what_they_have) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const auto ours = member();
  EXPECT_TRUE(ours->take(0, 30));
  for (int round = 0; round < 20; ++round) {
    const Descriptor socket = connect_to(place.path(), std::chrono::steady_clock::now() + soon);
    RequestMessage hello{.operation = Operation::hello, .id = 1};
    if (random() % 4 != 0) {
      std::ranges::copy(token, hello.name.begin());
    }
    ASSERT_TRUE(is_answered(socket.get(), hello));
    ASSERT_TRUE(is_answered(
        socket.get(),
        {.operation = Operation::add_device, .id = 2, .size_bytes = 100, .name = {'g', 'p', 'u'}}));
    for (std::uint64_t id = 3; id < 100; ++id) {
      ASSERT_TRUE(is_answered(socket.get(), random_request(random, id)));
      const std::uint64_t used = ours->group_used_bytes(0);
      ASSERT_TRUE(used >= 30 && used <= 60) << used;
    }
  }
  EXPECT_TRUE(ours->take(0, 30)) << "what they had is back";
  EXPECT_TRUE(eventually([&] { return held(*ours) == 60U; }));
}

}  // namespace
}  // namespace hippogriff::noded
