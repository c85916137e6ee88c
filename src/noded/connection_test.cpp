// The suite of the node over a server, and what a client makes of servers that go or talk nonsense.
#include "noded/connection.hpp"

#include "base/error.hpp"
#include "noded/open_node.hpp"
#include "testing/node_conformance.hpp"
#include "testing/node_server.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::NodeConformance;
using hippogriff::testing::NodePlace;
using hippogriff::testing::NodeWay;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::serves;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::soon;
using hippogriff::testing::status_of;
using hippogriff::testing::waiting;
using node::Policy;

class ServedPlace final : public NodePlace {
 public:
  explicit ServedPlace(Policy policy) : server_(place_.options(policy)) {}

  std::unique_ptr<node::NodeClient> open() override {
    return std::make_unique<Connection>(place_.client());
  }

 private:
  SocketPlace place_;
  RunningServer server_;
};

INSTANTIATE_TEST_SUITE_P(Server,
                         NodeConformance,
                         ::testing::Values(NodeWay{
                             "server",
                             [](Policy policy) { return std::make_unique<ServedPlace>(policy); }}),
                         hippogriff::testing::node_way_name);

Failure failure_of_call(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failure();
  }
  return {};
}

// A server in a process of its own, which nothing of the test's is shared with.
Child serving_process(const SocketPlace& place) {
  return Child([&] {
    Server server(place.options());
    server.run();
    return 0;
  });
}

TEST(Connection, says_what_to_do_when_nobody_listens) {
  const SocketPlace place;
  const Failure failure = failure_of_call([&] { const Connection client(place.client()); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.object, place.path());
  EXPECT_EQ(failure.errno_value, ENOENT);
  EXPECT_NE(failure.detail.find("noded"), std::string::npos);
  EXPECT_EQ(status_of([&] { const Connection client({.path = std::string(200, 'x')}); }),
            Status::invalid_argument);
}

TEST(Connection, keeps_to_the_books_of_the_segment) {
  const SocketPlace place;
  const RunningServer server(place.options());
  node::Node shared(place.options().node);
  shared.add_device("gpu", 100);
  const auto served = open_node("unix:" + place.path());
  served->add_device("other", 5);
  EXPECT_EQ(served->add_device("gpu", 100), 1U) << "counted as each client names them";
  const std::uint64_t ours = served->reserve({.device = 1, .size_bytes = 60});
  EXPECT_EQ(status_of([&] { shared.reserve(request(41)); }), Status::busy);
  std::thread thread([&] { shared.reserve(request(41, long_wait)); });
  EXPECT_TRUE(eventually([&] { return waiting(*served) == 1; }));
  served->release(ours);
  thread.join();
  const auto same = open_node(place.segment_path());
  EXPECT_EQ(held(*same), 41U);
}

TEST(Connection, learns_at_once_that_the_server_was_killed_and_stays_lost) {
  const SocketPlace place;
  Child server = serving_process(place);
  ASSERT_TRUE(serves(place.path()));
  Connection client(place.client());
  client.add_device("gpu", 100);
  client.reserve(request(100));
  std::vector<std::thread> threads;
  for (int count = 0; count < 2; ++count) {
    threads.emplace_back([&] {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(status_of([&] { client.reserve(request(1, long_wait)); }), Status::io_error);
      EXPECT_LT(std::chrono::steady_clock::now() - start, soon);
    });
  }
  EXPECT_TRUE(eventually([&] { return waiting(client) == 2; }));
  server.send(SIGKILL);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(server.wait(), -SIGKILL);
  Child next = serving_process(place);
  ASSERT_TRUE(serves(place.path()));
  const Failure failure = failure_of_call([&] { static_cast<void>(client.view()); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.object, place.path());
  EXPECT_NE(failure.errno_value, 0);
  EXPECT_NE(failure.detail.find("released"), std::string::npos);
  Connection again(place.client());
  again.add_device("gpu", 100);
  again.release(again.reserve(request(100, long_wait)));
}

TEST(Connection, gives_up_a_stopped_server_after_its_margin) {
  const SocketPlace place;
  const Child server = serving_process(place);
  ASSERT_TRUE(serves(place.path()));
  ConnectionOptions options = place.client();
  options.reply_margin = std::chrono::milliseconds(2000);
  Connection client(options);
  server.send(SIGSTOP);
  server.wait_stopped();
  const Failure failure = failure_of_call([&] { static_cast<void>(client.view()); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, ETIMEDOUT);
}

// One client whose requests are answered with `bytes`.
class WrongServer {
 public:
  explicit WrongServer(std::vector<std::byte> bytes)
      : listener_(ServerPlace::parse(place_.path())),
        thread_([this, bytes = std::move(bytes)] { answer(bytes); }) {}

  ~WrongServer() {
    static_cast<void>(::shutdown(listener_.fd(), SHUT_RDWR));
    thread_.join();
  }

  WrongServer(const WrongServer&) = delete;
  WrongServer& operator=(const WrongServer&) = delete;

  [[nodiscard]] ConnectionOptions client() const { return place_.client(); }

 private:
  void answer(std::span<const std::byte> bytes) const {
    const MonotonicTime deadline = std::chrono::steady_clock::now() + soon;
    std::array<std::byte, sizeof(RequestMessage)> request_bytes{};
    Descriptor socket;
    EXPECT_TRUE(eventually([&] {
      socket = Descriptor(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      return socket.valid();
    }));
    EXPECT_EQ(receive_all(socket.get(), request_bytes, deadline), 0);
    EXPECT_EQ(send_all(socket.get(), bytes, deadline), 0);
  }

  SocketPlace place_;
  Listener listener_;
  std::thread thread_;
};

std::vector<std::byte> bytes_of(const ReplyMessage& reply) {
  const auto bytes = std::as_bytes(std::span(&reply, 1));
  return {bytes.begin(), bytes.end()};
}

TEST(Listener, leaves_no_lock_beside_what_is_not_its_own) {
  const TemporaryFolder folder;
  const std::string path = folder.file("data");
  std::ofstream(path) << "somebody's";
  EXPECT_EQ(status_of([&] { const Listener made(ServerPlace::parse(path)); }), Status::unsupported);
  EXPECT_NE(::access((path + ".lock").c_str(), F_OK), 0);
}

TEST(Connection, refuses_answers_that_make_no_sense) {
  ReplyMessage version;
  version.id = 1;
  version.version = protocol_version + 1;
  ReplyMessage stranger;
  stranger.id = 77;
  ReplyMessage endless;
  endless.id = 1;
  endless.reservation_count = node::reservations_max + 1;
  for (const std::vector<std::byte>& bytes : {bytes_of(version),
                                              bytes_of(stranger),
                                              bytes_of(endless),
                                              std::vector<std::byte>(512, std::byte{'?'}),
                                              std::vector<std::byte>(511, std::byte{'?'}),
                                              std::vector<std::byte>{}}) {
    const WrongServer server(bytes);
    const Failure failure = failure_of_call([&] { const Connection client(server.client()); });
    EXPECT_EQ(failure.status, Status::io_error);
    const int expected = bytes == bytes_of(version) ? EPROTONOSUPPORT : EBADMSG;
    EXPECT_EQ(failure.errno_value, bytes.size() == sizeof(ReplyMessage) ? expected : ECONNRESET);
  }
}

}  // namespace
}  // namespace hippogriff::noded
