// The server itself: its place, whom it serves, clients that misbehave, and its end.
#include "noded/server.hpp"

#include "base/error.hpp"
#include "noded/connection.hpp"
#include "noded/protocol.hpp"
#include "noded/socket.hpp"
#include "testing/node_server.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::serves;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::soon;
using hippogriff::testing::status_of;
using hippogriff::testing::waiting;

MonotonicTime in_time() {
  return std::chrono::steady_clock::now() + soon;
}

std::span<const std::byte> bytes_of(const RequestMessage& message) {
  return std::as_bytes(std::span(&message, 1));
}

// What a server answers; nothing when it hangs up instead.
std::optional<ReplyMessage> reply_from(int socket) {
  std::array<std::byte, sizeof(ReplyMessage)> bytes{};
  ReplyMessage reply;
  if (receive_all(socket, bytes, in_time()) != 0) {
    return std::nullopt;
  }
  EXPECT_TRUE(decode_reply(bytes, reply));
  return reply;
}

bool hung_up(int socket) {
  std::array<std::byte, 1> byte{};
  return receive_all(socket, byte, in_time()) == ECONNRESET;
}

// What is not a client of the library: says what the test wants.
class RawClient {
 public:
  explicit RawClient(const SocketPlace& place) : socket_(connect_to(place.path(), in_time())) {
    const RequestMessage hello{.id = 1};
    EXPECT_EQ(send_all(socket_.get(), bytes_of(hello), in_time()), 0);
    EXPECT_EQ(reply_from(socket_.get()).value().status, Status::ok);
  }

  [[nodiscard]] int fd() const { return socket_.get(); }

  void send(std::span<const std::byte> bytes) const {
    EXPECT_EQ(send_all(socket_.get(), bytes, in_time()), 0);
  }

 private:
  Descriptor socket_;
};

// Waits until it is, or has ended.
bool stopped(const Child& child) {
  siginfo_t info{};
  const auto pid = static_cast<id_t>(child.pid());
  EXPECT_EQ(::waitid(P_PID, pid, &info, WEXITED | WSTOPPED | WNOWAIT), 0);
  return info.si_code == CLD_STOPPED;
}

class ServerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Connection> client() {
    auto made = std::make_unique<Connection>(place.client());
    made->add_device("gpu", 100);
    return made;
  }

  SocketPlace place;
};

TEST_F(ServerTest, is_seen_as_the_processes_that_it_acts_for) {
  const RunningServer server(place.options());
  Child user([this] {
    const auto theirs = client();
    theirs->reserve({.size_bytes = 10});
    ::pause();
    return 0;
  });
  node::Node node(place.options().node);
  ASSERT_TRUE(eventually([&] { return held(node) == 10; }));
  const node::NodeView view = node.view();
  EXPECT_EQ(view.reservations.at(0).pid, static_cast<std::uint64_t>(user.pid()));
  EXPECT_TRUE(std::ranges::any_of(view.clients, [&](const auto& each) {
    return each.pid == static_cast<std::uint64_t>(user.pid()) &&
           each.client == view.reservations.at(0).record.client;
  }));
}

TEST_F(ServerTest, gives_its_socket_to_its_user_alone_and_removes_it_at_the_end) {
  struct stat facts{};
  {
    const RunningServer server(place.options());
    ASSERT_EQ(::lstat(place.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode, static_cast<mode_t>(S_IFSOCK | 0600));
  }

  EXPECT_NE(::lstat(place.path().c_str(), &facts), 0);
}

TEST_F(ServerTest, is_refused_where_another_one_lives) {
  const RunningServer server(place.options());
  EXPECT_EQ(status_of([&] { const Server second(place.options()); }), Status::busy);
  EXPECT_EQ(client()->view().devices.size(), 1U) << "the first one goes on";
}

TEST_F(ServerTest, takes_the_place_of_one_that_was_killed) {
  Child killed([&] {
    Server server(place.options());
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(killed.wait(), -SIGKILL);
  EXPECT_EQ(::access(place.path().c_str(), F_OK), 0) << "its socket is still there";
  const RunningServer server(place.options());
  client()->reserve(request(100));
}

// 0 when another one was quicker; a server that could be made lives on, stopped.
int try_to_be_server(const ServerOptions& options) {
  std::unique_ptr<Server> server;
  const Status status = status_of([&] { server = std::make_unique<Server>(options); });
  if (status == Status::ok) {
    ::raise(SIGSTOP);
  }
  return status == Status::busy ? 0 : 1;
}

TEST_F(ServerTest, starts_once_however_many_start_at_once) {
  for (int round = 0; round < 10; ++round) {
    std::vector<Child> children;
    for (int count = 0; count < 4; ++count) {
      children.emplace_back([&] { return try_to_be_server(place.options()); });
    }
    const auto alive = std::ranges::count_if(children, stopped);
    EXPECT_EQ(alive, 1);
  }
}

TEST_F(ServerTest, leaves_what_is_not_its_own) {
  std::ofstream(place.path()) << "precious";
  EXPECT_EQ(status_of([&] { const Server server(place.options()); }), Status::unsupported);
  std::string text;
  std::ifstream(place.path()) >> text;
  EXPECT_EQ(text, "precious");
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  ASSERT_EQ(::symlink("/nowhere", place.path().c_str()), 0);
  EXPECT_EQ(status_of([&] { const Server server(place.options()); }), Status::unsupported);
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  // A socket that answers is another program's, though it knows nothing of our lock.
  const Descriptor other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(place.path());
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(other.get(), 5), 0);
  EXPECT_EQ(status_of([&] { const Server server(place.options()); }), Status::busy);
  EXPECT_EQ(::access(place.path().c_str(), F_OK), 0);
}

TEST_F(ServerTest, leaves_a_socket_that_took_its_place) {
  const std::string aside = place.path() + ".aside";
  {
    const RunningServer server(place.options());
    ASSERT_EQ(::rename(place.path().c_str(), aside.c_str()), 0);
    std::ofstream(place.path()) << "precious";
  }
  EXPECT_EQ(::access(place.path().c_str(), F_OK), 0);
}

TEST_F(ServerTest, refuses_another_user) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can be somebody else";
  }
  const RunningServer server(place.options());
  // The socket's mode would keep them off by itself.
  const std::string folder = place.path().substr(0, place.path().find_last_of('/'));
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(place.path().c_str(), 0666), 0);
  Child other([&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) {
      return 1;
    }
    const Descriptor socket = connect_to(place.path(), in_time());
    const auto reply = reply_from(socket.get());
    return reply && reply->status == Status::unsupported && hung_up(socket.get()) ? 0 : 2;
  });
  EXPECT_EQ(other.wait(), 0);
}

TEST(Listener, takes_the_default_path_only_in_a_folder_of_its_user_alone) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can be a user whose folder nobody uses";
  }
  Child user([] {
    ::unsetenv("XDG_RUNTIME_DIR");  // NOLINT(concurrency-mt-unsafe): the child has one thread
    const auto uid = static_cast<uid_t>(1'000'000 + ::getpid());
    if (::setgid(uid) != 0 || ::setuid(uid) != 0) {
      return 1;
    }
    const std::string folder = "/tmp/hippogriff-" + std::to_string(uid);
    int result = default_socket_path() == folder + "/node.sock" ? 0 : 2;
    struct stat facts{};
    if (status_of([] { const Listener listener(ServerPlace::parse("")); }) != Status::ok ||
        ::stat(folder.c_str(), &facts) != 0 || facts.st_mode != (S_IFDIR | 0700)) {
      result = 3;
    }
    static_cast<void>(::chmod(folder.c_str(), 0770));
    if (status_of([] { const Listener listener(ServerPlace::parse("")); }) != Status::unsupported) {
      result = 4;
    }
    ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): as above
    if (default_socket_path() != folder + "/hippogriff.sock") {
      result = 5;
    }
    static_cast<void>(::unlink((folder + "/node.sock.lock").c_str()));
    static_cast<void>(::rmdir(folder.c_str()));
    return result;
  });
  EXPECT_EQ(user.wait(), 0);
}

TEST_F(ServerTest, says_that_it_has_all_the_clients_it_can_have) {
  ServerOptions options = place.options();
  options.clients_max = 2;
  const RunningServer server(options);
  auto first = client();
  const auto second = client();
  EXPECT_EQ(status_of([&] { client(); }), Status::busy);
  first.reset();
  EXPECT_TRUE(eventually([&] { return status_of([&] { client(); }) == Status::ok; }));
}

TEST_F(ServerTest, has_256_clients_and_no_more) {
  // In a process of its own: 3 descriptors a client there, one here.
  const Child server([&] {
    Server made(place.options());
    made.run();
    return 0;
  });
  ASSERT_TRUE(serves(place.path()));
  std::vector<std::unique_ptr<Connection>> clients;
  while (clients.size() < node::clients_max) {
    // The one of `serves` may not have left yet.
    ASSERT_TRUE(
        eventually([&] { return status_of([&] { clients.push_back(client()); }) == Status::ok; }));
  }
  for (std::size_t index = 0; index < 100; ++index) {
    clients.at(index)->reserve(request(1));
  }
  EXPECT_EQ(status_of([&] { client(); }), Status::busy);
  EXPECT_EQ(held(*clients.back()), 100U);
  clients.clear();
  EXPECT_TRUE(eventually([&] { return status_of([&] { client(); }) == Status::ok; }));
}

TEST_F(ServerTest, says_that_it_has_no_descriptors_left_and_goes_on) {
  // A client takes several: with each of these limits another one of them is the first too many.
  for (rlim_t limit = 40; limit < 48; ++limit) {
    const Child server([&] {
      const rlimit few{.rlim_cur = limit, .rlim_max = limit};
      static_cast<void>(::setrlimit(RLIMIT_NOFILE, &few));
      Server made(place.options());
      made.run();
      return 0;
    });
    // Who says goodbye has left when it is gone; what `serves` asks with may not have.
    ASSERT_TRUE(eventually([&] { return status_of([&] { client(); }) == Status::ok; }));
    std::vector<std::unique_ptr<Connection>> clients;
    Failure refusal;
    const auto connect = [&] {
      try {
        clients.push_back(client());
        return true;
      } catch (const Error& error) {
        refusal = error.failure();
        return false;
      }
    };
    while (clients.size() < limit && connect()) {
    }
    EXPECT_LT(clients.size(), limit);
    EXPECT_EQ(refusal.status, Status::busy);
    EXPECT_NE(refusal.message().find("server has no file descriptors left"), std::string::npos)
        << refusal.message();
    EXPECT_FALSE(connect()) << "nobody has left";
    EXPECT_EQ(refusal.status, Status::busy) << refusal.message();
    clients.clear();
    EXPECT_TRUE(eventually(connect));
  }
}

TEST(Socket, has_a_path_of_1_to_107_bytes) {
  const auto told = [](const std::string& path) -> std::string {
    try {
      static_cast<void>(address_of(path));
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument);
      return error.failure().detail;
    }
    return {};
  };
  const std::string longest(107, 'x');
  EXPECT_EQ(told("x"), "");
  EXPECT_EQ(told(longest), "");
  EXPECT_EQ(told(longest + "x"),
            "its path has 108 bytes, and 107 are the most: \"" + longest + "x\"");
  EXPECT_EQ(told(""), "its path is empty");
}

TEST_F(ServerTest, is_not_held_up_by_half_a_message) {
  const RunningServer server(place.options());
  const RawClient half(place);
  const RequestMessage message{.operation = Operation::view, .id = 2};
  half.send(bytes_of(message).first(50));
  const auto other = client();
  other->release(other->reserve(request(100)));
  half.send(bytes_of(message).subspan(50));
  EXPECT_EQ(reply_from(half.fd()).value().id, 2U) << "it was only slow";
}

TEST_F(ServerTest, hangs_up_on_what_it_does_not_understand) {
  const RunningServer server(place.options());
  std::mt19937_64 random(4);
  for (int round = 0; round < 50; ++round) {
    const RawClient confused(place);
    std::vector<std::byte> nonsense(sizeof(RequestMessage));
    for (std::byte& byte : nonsense) {
      byte = static_cast<std::byte>(random());
    }
    confused.send(nonsense);
    const ReplyMessage reply = reply_from(confused.fd()).value();
    EXPECT_EQ(reply.id, 0U);
    EXPECT_EQ(reply.status, Status::unsupported);
    EXPECT_TRUE(hung_up(confused.fd()));
  }
  const RawClient twice(place);
  twice.send(bytes_of({.operation = Operation::hello, .id = 2}));
  EXPECT_EQ(reply_from(twice.fd()).value().status, Status::unsupported);
  const Descriptor early = connect_to(place.path(), in_time());
  EXPECT_EQ(send_all(early.get(), bytes_of({.operation = Operation::view, .id = 1}), in_time()), 0);
  EXPECT_EQ(reply_from(early.get()).value().status, Status::unsupported);
  client()->reserve(request(100));
}

TEST_F(ServerTest, bounds_the_waits_of_one_client) {
  const RunningServer server(place.options());
  const auto holder = client();
  const std::uint64_t all = holder->reserve(request(100));
  const RawClient greedy(place);
  RequestMessage device{.operation = Operation::add_device, .id = 2, .size_bytes = 100};
  std::copy_n("gpu", 3, device.name.begin());
  greedy.send(bytes_of(device));
  EXPECT_EQ(reply_from(greedy.fd()).value().status, Status::ok);
  RequestMessage wait{.operation = Operation::reserve, .id = 3, .size_bytes = 1};
  wait.timeout_ms = timeout_ms_max;
  for (std::size_t count = 0; count <= waits_max; ++count, ++wait.id) {
    greedy.send(bytes_of(wait));
  }
  const ReplyMessage refusal = reply_from(greedy.fd()).value();
  EXPECT_EQ(refusal.id, 3 + waits_max);
  EXPECT_EQ(refusal.status, Status::busy);
  EXPECT_TRUE(eventually([&] { return waiting(*holder) == waits_max; }));
  EXPECT_EQ(::shutdown(greedy.fd(), SHUT_RDWR), 0);
  EXPECT_TRUE(eventually([&] { return waiting(*holder) == 0; })) << "it hung up";
  holder->release(all);
}

TEST_F(ServerTest, does_not_wait_for_a_client_that_reads_nothing) {
  const RunningServer server(place.options());
  const RawClient deaf(place);
  const RequestMessage message{.operation = Operation::view, .id = 2};
  // Until both sockets' buffers are full: the server's thread for this client writes and waits.
  while (::send(deaf.fd(), &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(message))) {
  }
  const auto other = client();
  other->release(other->reserve(request(100)));
}

TEST_F(ServerTest, ends_cleanly_when_its_descriptor_says_so) {
  Child server([&] {
    static int stop_fd = -1;
    stop_fd = ::eventfd(0, EFD_CLOEXEC);
    struct sigaction action{};
    action.sa_handler = [](int) {
      const std::uint64_t one = 1;
      static_cast<void>(::write(stop_fd, &one, sizeof(one)));
    };
    ::sigaction(SIGTERM, &action, nullptr);
    run_server(place.options(), stop_fd);
    return 7;
  });
  ASSERT_TRUE(serves(place.path()));
  const auto served = client();
  served->reserve(request(100));
  std::thread thread([&] {
    EXPECT_EQ(status_of([&] { served->reserve(request(1, long_wait)); }), Status::io_error);
  });
  EXPECT_TRUE(eventually([&] { return waiting(*served) == 1; }));
  server.send(SIGTERM);
  thread.join();
  EXPECT_EQ(server.wait(), 7);
  EXPECT_NE(::access(place.path().c_str(), F_OK), 0);
  node::Node shared(place.options().node);
  EXPECT_EQ(held(shared), 0U) << "what it held for others went with it";
}

}  // namespace
}  // namespace hippogriff::noded
