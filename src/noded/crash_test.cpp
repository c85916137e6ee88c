// kill -9 of clients at random moments, while others wait, hold and are being answered; at the end
// the books balance. What a segment has of such tests is in node/crash_test.cpp.
#include "noded/connection.hpp"
#include "testing/node_segment.hpp"
#include "testing/node_server.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

namespace hippogriff::noded {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::long_wait;
using hippogriff::testing::request;
using hippogriff::testing::RunningServer;
using hippogriff::testing::SocketPlace;
using hippogriff::testing::status_of;
using std::chrono::milliseconds;

// Reserves, grows, shrinks, releases until it is killed; returns when something failed.
int work(const ConnectionOptions& options, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Connection node(options);
  node.add_device("gpu", 100);
  for (;;) {
    const std::uint64_t handle = node.reserve(
        request(1 + random() % 100, long_wait, static_cast<std::int32_t>(random() % 2)));
    if (random() % 4 == 0) {
      static_cast<void>(status_of([&] { node.grow(handle, 101, milliseconds(1)); }));
      static_cast<void>(status_of([&] { node.shrink(handle, 1); }));
      static_cast<void>(status_of([&] { node.grow(handle, 1 + random() % 100, milliseconds(2)); }));
    }
    ::usleep(static_cast<useconds_t>(random() % 300));
    node.release(handle);
  }
}

TEST(Crash, of_clients_at_random_moments_leaks_nothing_and_holds_nobody_up) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const SocketPlace place;
  ServerOptions options = place.options(node::Policy::aging_mmu);
  options.node.bound = {.grants_max = 8, .wait_ns_max = 100'000'000};
  const RunningServer server(options);
  std::vector<std::unique_ptr<Child>> children(6);
  for (std::uint64_t kill = 0; kill < 300; ++kill) {
    auto& child = children[random() % children.size()];
    if (child != nullptr) {
      child->send(SIGKILL);
      EXPECT_EQ(child->wait(), -SIGKILL) << "it failed by itself";
    }
    child = std::make_unique<Child>([&] { return work(place.client(), seed + kill); });
    ::usleep(static_cast<useconds_t>(random() % 4000));
  }
  children.clear();
  Connection ours(place.client());
  ours.add_device("gpu", 100);
  ours.release(ours.reserve(request(100, long_wait)));
  // The server may still be taking leave of one that died waiting.
  EXPECT_TRUE(eventually([&] { return ours.view().reservations.empty(); }));
}

}  // namespace
}  // namespace hippogriff::noded
