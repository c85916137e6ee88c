// A server of a test's own, in this process or in one that can be killed.
#pragma once

#include "noded/connection.hpp"
#include "noded/server.hpp"
#include "testing/node_segment.hpp"
#include "testing/temporary_folder.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

namespace hippogriff::testing {

// Where a test's server has its socket, in a folder whose path is short enough for one.
class SocketPlace {
 public:
  [[nodiscard]] std::string path() const { return folder_.file("node.sock"); }

  [[nodiscard]] std::string segment_path() const { return segment_.path(); }

  [[nodiscard]] noded::ServerOptions options(node::Policy policy = node::Policy::mmu) const {
    return {.path = path(), .node = segment_.options(policy)};
  }

  [[nodiscard]] noded::ConnectionOptions client() const { return {.path = path()}; }

 private:
  TemporaryFolder folder_{"/tmp"};
  TemporarySegment segment_;
};

// Listens when it is made, serves in a thread until it goes.
class RunningServer {
 public:
  explicit RunningServer(noded::ServerOptions options)
      : server_(std::move(options)), thread_([this] { server_.run(); }) {
    // Tests fork soon, and AddressSanitizer's allocator is not made for that: a child inherits the
    // locks that the new thread has at that moment. It allocates until it waits for clients.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  ~RunningServer() {
    server_.stop();
    thread_.join();
  }

  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

 private:
  noded::Server server_;
  std::thread thread_;
};

// Whether somebody listens there, within ten seconds.
inline bool serves(const std::string& path) {
  return eventually([&] {
    return status_of([&] {
             noded::connect_to(path, std::chrono::steady_clock::now() + std::chrono::seconds(1));
           }) == Status::ok;
  });
}

}  // namespace hippogriff::testing
