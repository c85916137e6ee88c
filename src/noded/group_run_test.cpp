// Users of a group's server and reservations that processes share: whose words they are, and whose
// part of the server what is shared comes out of.
#include "base/error.hpp"
#include "noded/connection.hpp"
#include "noded/guest.hpp"
#include "noded/run_token.hpp"
#include "noded/server_place.hpp"
#include "testing/node_server.hpp"
#include "testing/other_user.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::Answers;
using hippogriff::testing::become;
using hippogriff::testing::Child;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::shared_group;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::somebody;
using hippogriff::testing::somebody_else;
using hippogriff::testing::status_of;

class GroupRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can become somebody else";
    }
    const std::string folder = ServerPlace::parse(place.path()).folder();
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  }

  [[nodiscard]] ServerOptions options() const {
    ServerOptions options = place.options();
    options.path = "group:" + std::to_string(shared_group) + ":" + place.path();
    return options;
  }

  [[nodiscard]] std::unique_ptr<Connection> client(const std::string& words) const {
    auto made = std::make_unique<Connection>(
        ConnectionOptions{.path = options().path, .reservation = words});
    made->add_device("gpu", 10'000);
    return made;
  }

  SocketPlace place;
};

TEST_F(GroupRunTest, another_users_words_make_nobody_a_follower) {
  const RunningServer server(options());
  const auto ours = client("");
  ours->reserve(request(60));
  const std::string token = ours->leader();
  Child other([&] {
    become(somebody, shared_group);
    const auto theirs = client(token);
    return theirs->follows() || theirs->take(0, 1) || theirs->granted_bytes(0) != 0 ? 1 : 0;
  });
  EXPECT_EQ(other.wait(), 0);
  EXPECT_TRUE(client(token)->follows());
  const Answers answers;
  Child his([&] {
    become(somebody, shared_group);
    const auto theirs = client("");
    theirs->reserve(request(60));
    const std::string words = theirs->leader();
    static_cast<void>(::write(answers.to(), words.data(), words.size()));
    ::pause();
    return 0;
  });
  const std::string words = answers.next(run_token_digits);
  EXPECT_FALSE(client(words)->follows()) << "the server's own user and root no more than others";
  Child third([&] {
    become(somebody_else, shared_group);
    return client(words)->follows() ? 1 : 0;
  });
  EXPECT_EQ(third.wait(), 0);
  Child same([&] {
    become(somebody, shared_group);
    return client(words)->take(0, 60) ? 0 : 1;
  });
  EXPECT_EQ(same.wait(), 0);
}

// Leaders that go while somebody follows leave reservations behind, which are still his.
TEST_F(GroupRunTest, what_a_leader_leaves_to_its_followers_counts_for_its_user) {
  const RunningServer server(options());
  Child greedy([&] {
    become(somebody, shared_group);
    std::vector<std::unique_ptr<Connection>> followers;
    for (std::uint32_t left = guest_reservations_max; left != 0;) {
      const auto leader = client("");
      for (std::uint32_t count = 0; count < 32; ++count, --left) {
        leader->reserve(request(1));
      }
      followers.push_back(client(leader->leader()));
    }
    const auto one_more = client("");
    if (status_of([&] { one_more->reserve(request(1)); }) != Status::busy) {
      return 1;
    }
    followers.pop_back();
    return status_of([&] { one_more->reserve(request(1)); }) == Status::ok ? 0 : 2;
  });
  EXPECT_EQ(greedy.wait(), 0);
}

TEST_F(GroupRunTest, a_leader_that_is_kept_is_one_of_its_users_clients) {
  ServerOptions few = options();
  few.clients_max = 16;
  const RunningServer server(few);
  Child greedy([&] {
    become(somebody, shared_group);
    auto leader = client("");
    const auto follower = client(leader->leader());
    const auto third = client("");
    leader.reset();
    const auto one_more = [&] { return status_of([&] { const auto made = client(""); }); };
    if (one_more() != Status::ok) {
      return 1;  // he may have four, and has three
    }
    const auto fourth = client("");
    return one_more() == Status::busy ? 0 : 2;
  });
  EXPECT_EQ(greedy.wait(), 0);
}

}  // namespace
}  // namespace hippogriff::noded
