// A server that the members of a group use: who may, what each may have, and whose process he is.
#include "base/error.hpp"
#include "noded/connection.hpp"
#include "noded/guest.hpp"
#include "noded/server.hpp"
#include "noded/server_place.hpp"
#include "testing/node_server.hpp"
#include "testing/other_user.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::become;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::other_group;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::shared_group;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::somebody;
using hippogriff::testing::somebody_else;
using hippogriff::testing::soon;
using hippogriff::testing::status_of;
using hippogriff::testing::waiting;

constexpr std::uint64_t device_bytes = 10'000;

TEST(ServerPlace, tells_paths_and_groups_apart) {
  EXPECT_EQ(ServerPlace::parse("/a:b").path, "/a:b");
  EXPECT_FALSE(ServerPlace::parse("/a:b").group.has_value());
  EXPECT_EQ(ServerPlace::parse("").path, default_socket_path());
  EXPECT_TRUE(ServerPlace::parse("").is_default);
  EXPECT_EQ(ServerPlace::parse("group:77").path, "/tmp/hippogriff-group-77/node.sock");
  EXPECT_EQ(ServerPlace::parse("group:77").group, 77U);
  EXPECT_EQ(ServerPlace::parse("group:root:/a:b").path, "/a:b");
  EXPECT_EQ(ServerPlace::parse("group:root:/a:b").group, 0U);
  EXPECT_EQ(ServerPlace::parse("/a").folder(), "/");
  EXPECT_EQ(ServerPlace::parse("a").folder(), ".");
  for (const std::string address : {"group:", "group:no such", "group:7:"}) {
    EXPECT_EQ(status_of([&] { ServerPlace::parse(address); }), Status::invalid_argument) << address;
  }
}

TEST(Guest, leaves_places_free_however_many_are_greedy) {
  std::uint32_t now = 0;
  std::uint32_t users = 0;
  for (; now < 256; ++users) {
    std::uint32_t his = 0;
    while (his < guest_clients_max(256, now)) {
      ++his;
      ++now;
    }
    ASSERT_NE(his, 0U);
    EXPECT_LE(his, 64U);
  }
  EXPECT_GE(users, 9U);
  EXPECT_EQ(guest_clients_max(256, 300), 0U);
  EXPECT_EQ(guest_clients_max(2, 0), 1U);
}

TEST(Guest, leaves_reservations_free_however_many_are_greedy) {
  const auto totals = std::make_shared<GuestTotals>();
  std::vector<std::unique_ptr<Guest>> users;
  while (totals->reservations < node::reservations_max) {
    users.push_back(std::make_unique<Guest>(1000 + users.size(), false, totals));
    const std::uint32_t before = totals->reservations;
    while (status_of([&] { users.back()->take_reservation(); }) == Status::ok) {
    }
    const std::uint32_t his = totals->reservations - before;
    ASSERT_NE(his, 0U) << "there is something for everybody who comes";
    EXPECT_LE(his, guest_reservations_max);
    EXPECT_LE(his, node::reservations_max - before - his + 1) << "as much as is left";
  }
  EXPECT_GE(users.size(), 11U);
  for (const auto& user : users) {
    user->give_reservations(UINT32_MAX);
  }
  EXPECT_EQ(totals->reservations, 0U);
}

TEST(Guest, may_say_what_a_device_has_that_nobody_uses) {
  const testing::TemporarySegment place;
  node::Node one(place.options());
  const std::uint32_t device = one.add_device("made-up", 4096);
  node::Node other(place.options());
  const auto totals = std::make_shared<GuestTotals>();
  Guest guest(1000, false, totals);
  EXPECT_EQ(guest.check_device(other, "made-up", 8192), 8192U);
  one.release(one.reserve({.device = device, .size_bytes = 1}));
  EXPECT_EQ(guest.check_device(other, "made-up", 8192), 8192U);
  one.reserve({.device = device, .size_bytes = 1});
  EXPECT_EQ(status_of([&] { guest.check_device(other, "made-up", 8192); }),
            Status::invalid_argument);
}

class GroupServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "only root can become somebody else";
    }
    ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  }

  [[nodiscard]] std::string folder() const { return ServerPlace::parse(place.path()).folder(); }

  [[nodiscard]] std::string address() const {
    return "group:" + std::to_string(shared_group) + ":" + place.path();
  }

  [[nodiscard]] ServerOptions options() const {
    ServerOptions options = place.options();
    options.path = address();
    return options;
  }

  // For a child that has become somebody.
  std::unique_ptr<Connection> client() const {
    auto made = std::make_unique<Connection>(ConnectionOptions{.path = address()});
    made->add_device("gpu", device_bytes);
    return made;
  }

  // Ends well when `body` returns 0 as that user.
  template <typename Body>
  Child member(uid_t user, Body body) const {
    return Child([user, body] {
      become(user, shared_group);
      return body();
    });
  }

  SocketPlace place;
};

TEST_F(GroupServerTest, gives_its_socket_to_the_group_alone) {
  const mode_t before = ::umask(077);
  const RunningServer server(options());
  ::umask(before);
  struct stat facts{};
  ASSERT_EQ(::lstat(place.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode, static_cast<mode_t>(S_IFSOCK | 0660));
  EXPECT_EQ(facts.st_gid, shared_group);
  EXPECT_EQ(facts.st_uid, ::geteuid());
}

TEST_F(GroupServerTest, serves_members_and_nobody_else) {
  const RunningServer server(options());
  Child served = member(somebody, [&] {
    client()->reserve(request(10));
    return 0;
  });
  EXPECT_EQ(served.wait(), 0);
  const auto connect_as_outsider = [&] {
    become(somebody_else, other_group);
    const Status status = status_of([&] { client(); });
    return static_cast<int>(status);
  };
  EXPECT_EQ(Child(connect_as_outsider).wait(), static_cast<int>(Status::io_error)) << "its mode";
  ASSERT_EQ(::chmod(place.path().c_str(), 0666), 0);
  EXPECT_EQ(Child(connect_as_outsider).wait(), static_cast<int>(Status::unsupported))
      << "the server asks by itself";
  EXPECT_EQ(status_of([&] { client()->reserve(request(10)); }), Status::ok) << "and root";
}

TEST_F(GroupServerTest, its_users_wait_for_each_others_memory_and_death) {
  const RunningServer server(options());
  const auto reserve_6000 = [&] {
    const auto ours = client();
    ours->reserve(request(6000, long_wait));
    ::pause();
    return 1;
  };
  node::Node watcher(options().node);
  const auto holder = [&] {
    for (const auto& reservation : watcher.view().reservations) {
      if (reservation.record.size_bytes != 0) {
        return static_cast<pid_t>(reservation.pid);
      }
    }
    return pid_t{0};
  };
  Child first = member(somebody, reserve_6000);
  ASSERT_TRUE(eventually([&] { return holder() == first.pid(); }));
  Child second = member(somebody_else, reserve_6000);
  ASSERT_TRUE(eventually([&] { return waiting(watcher) == 1; }));
  EXPECT_EQ(holder(), first.pid());
  first.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return holder() == second.pid(); }));
}

// The user's clients up to the bound, then what he is told.
int connect_until_refused(const std::string& address, std::size_t clients_max) {
  std::vector<std::unique_ptr<Connection>> clients;
  const auto connect = [&] {
    return status_of([&] {
      clients.push_back(std::make_unique<Connection>(ConnectionOptions{.path = address}));
    });
  };
  while (clients.size() < clients_max && connect() == Status::ok) {
  }
  if (clients.size() != clients_max) {
    return 1;
  }
  if (connect() != Status::busy) {
    return 2;
  }
  ::raise(SIGSTOP);
  return 0;
}

TEST_F(GroupServerTest, one_member_does_not_have_all_its_clients) {
  ServerOptions few = options();
  few.clients_max = 8;
  const RunningServer server(few);
  const Child greedy = member(somebody, [&] { return connect_until_refused(address(), 2); });
  greedy.wait_stopped();
  const Child other = member(somebody_else, [&] { return connect_until_refused(address(), 2); });
  other.wait_stopped();
  EXPECT_EQ(status_of([&] { client(); }), Status::ok);
}

TEST_F(GroupServerTest, one_member_does_not_have_all_reservations) {
  const RunningServer server(options());
  Child greedy = member(somebody, [&] {
    const auto first = client();
    auto second = client();
    std::vector<std::uint64_t> handles;
    for (std::uint32_t count = 0; count < guest_reservations_max; ++count) {
      handles.push_back((count % 2 != 0 ? first : second)->reserve(request(1)));
    }
    if (status_of([&] { first->reserve(request(1, long_wait)); }) != Status::busy) {
      return 1;
    }
    first->release(handles.at(1));
    if (status_of([&] { first->reserve(request(device_bytes + 1)); }) !=
        Status::out_of_device_memory) {
      return 2;
    }
    first->reserve(request(1));
    second.reset();
    for (std::uint32_t count = 0; count < guest_reservations_max / 2; ++count) {
      first->reserve(request(1));
    }
    if (status_of([&] { first->reserve(request(1)); }) != Status::busy) {
      return 3;
    }
    ::raise(SIGSTOP);
    return 0;
  });
  greedy.wait_stopped();
  Child other = member(somebody_else, [&] {
    client()->reserve(request(1));
    return 0;
  });
  EXPECT_EQ(other.wait(), 0);
  greedy.send(SIGCONT);
  EXPECT_EQ(greedy.wait(), 0);
}

TEST_F(GroupServerTest, members_do_not_decide_for_the_others) {
  const RunningServer server(options());
  const auto ours = client();
  Child child = member(somebody, [&] {
    const auto theirs = client();
    if (status_of([&] { theirs->set_policy(node::Policy::priority_mmu, {}); }) !=
        Status::unsupported) {
      return 1;
    }
    theirs->set_unreserved(0, {.outside_bytes = device_bytes});
    if (theirs->view().devices.at(0).outside_bytes != 0) {
      return 2;
    }
    for (std::size_t count = 0; count < guest_devices_max; ++count) {
      theirs->add_device("made-up-" + std::to_string(count), 1);
    }
    if (status_of([&] { theirs->add_device("one-more", 1); }) != Status::busy) {
      return 3;
    }
    return status_of([&] { theirs->add_device("made-up-0", 1); }) == Status::ok ? 0 : 4;
  });
  EXPECT_EQ(child.wait(), 0);
  ours->set_policy(node::Policy::priority_fifo, {});
  ours->set_unreserved(0, {.outside_bytes = 7});
  EXPECT_EQ(ours->view().devices.at(0).outside_bytes, 7U);
  EXPECT_EQ(ours->view().policy, node::Policy::priority_fifo);
  ours->add_device("one-more", 1);
}

TEST_F(GroupServerTest, a_few_members_do_not_give_all_the_names_there_are) {
  const RunningServer server(options());
  const auto names_until_refused = [&](uid_t user) {
    Child child = member(user, [&] {
      const auto theirs = client();
      int count = 0;
      const auto name = [&] {
        theirs->add_device("of-" + std::to_string(user) + "-" + std::to_string(count), 1);
      };
      while (status_of(name) == Status::ok) {
        ++count;
      }
      return count;
    });
    return child.wait();
  };
  std::vector<int> counts;
  for (uid_t user = somebody; user < somebody + 5; ++user) {
    counts.push_back(names_until_refused(user));
  }
  EXPECT_EQ(counts, (std::vector<int>{7, 4, 2, 1, 1}))
      << "of sixteen, the first had named one before";
}

TEST_F(GroupServerTest, who_ends_is_nobody_though_a_child_keeps_his_socket) {
  const RunningServer server(options());
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  Child parent = member(somebody, [&] {
    const auto ours = client();
    ours->reserve(request(10));
    const pid_t child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
    return ::write(pipe[1], &child, sizeof(child)) == sizeof(child) ? (::pause(), 1) : 2;
  });
  pid_t child = 0;
  ASSERT_EQ(::read(pipe[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  node::Node watcher(options().node);
  EXPECT_EQ(held(watcher), 10U);
  parent.send(SIGKILL);
  EXPECT_TRUE(eventually([&] { return held(watcher) == 0; }));
  EXPECT_EQ(::kill(child, SIGKILL), 0) << "it lived, and had the socket";
  ::close(pipe[0]);
  ::close(pipe[1]);
}

TEST_F(GroupServerTest, stands_only_where_nobody_can_take_its_place) {
  ASSERT_EQ(::chmod(folder().c_str(), 0770), 0);
  EXPECT_EQ(status_of([&] { const Server server(options()); }), Status::unsupported);
  ASSERT_EQ(::chmod(folder().c_str(), 01770), 0);
  EXPECT_EQ(status_of([&] { const Server server(options()); }), Status::ok) << "sticky";
  ASSERT_EQ(::chmod(folder().c_str(), 0755), 0);
  ASSERT_EQ(::chown(folder().c_str(), somebody, shared_group), 0);
  EXPECT_EQ(status_of([&] { const Server server(options()); }), Status::unsupported);
  ASSERT_EQ(::chown(folder().c_str(), 0, 0), 0);
  EXPECT_EQ(::access(place.path().c_str(), F_OK), -1);
}

TEST_F(GroupServerTest, is_made_by_members_and_root_only) {
  ASSERT_EQ(::chown(folder().c_str(), somebody, other_group), 0);
  Child outsider([&] {
    become(somebody, other_group);
    return status_of([&] { const Listener made(ServerPlace::parse(address())); }) ==
                   Status::io_error
               ? 0
               : 1;
  });
  EXPECT_EQ(outsider.wait(), 0);
  EXPECT_EQ(::access(place.path().c_str(), F_OK), -1) << "nothing was left behind";
  Child inside = member(somebody, [&] {
    const Listener made(ServerPlace::parse(address()));
    return 0;
  });
  EXPECT_EQ(inside.wait(), 0);
}

TEST_F(GroupServerTest, a_client_does_not_believe_a_stranger) {
  ASSERT_EQ(::chown(folder().c_str(), somebody, other_group), 0);
  Child stranger([&] {
    become(somebody, other_group);
    const Descriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_un name = address_of(place.path());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 ||
        ::chmod(place.path().c_str(), 0666) != 0 || ::listen(socket.get(), 5) != 0) {
      return 1;
    }
    ::pause();
    return 0;
  });
  ASSERT_TRUE(hippogriff::testing::serves(place.path()));
  Child user = member(somebody_else,
                      [&] { return status_of([&] { client(); }) == Status::unsupported ? 0 : 1; });
  EXPECT_EQ(user.wait(), 0);
}

TEST_F(GroupServerTest, has_a_default_place_that_only_members_can_enter) {
  const gid_t group = 1'000'000 + static_cast<gid_t>(::getpid());
  const ServerPlace default_place = ServerPlace::parse("group:" + std::to_string(group));
  {
    const Listener listener(default_place);
    struct stat facts{};
    ASSERT_EQ(::lstat(default_place.folder().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode, static_cast<mode_t>(S_IFDIR | 0750));
    EXPECT_EQ(facts.st_gid, group);
  }
  EXPECT_EQ(status_of([&] { const Listener again(default_place); }), Status::ok);
  ASSERT_EQ(::chmod(default_place.folder().c_str(), 0770), 0);
  EXPECT_EQ(status_of([&] { const Listener open(default_place); }), Status::unsupported);
  static_cast<void>(::unlink((default_place.path + ".lock").c_str()));
  EXPECT_EQ(::rmdir(default_place.folder().c_str()), 0);
}

}  // namespace
}  // namespace hippogriff::noded
