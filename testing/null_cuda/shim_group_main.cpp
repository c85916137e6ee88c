// Runs the shim's tests over the null driver in a process of a command: a leader has reserved the
// limit on each device before the shim reads its environment. The node is in shared memory, or,
// with HIPPOGRIFF_BEHIND_SERVER, a server's of this process.
#include "node/node.hpp"
#include "noded/open_node.hpp"
#include "testing/node_server.hpp"
#include "testing/null_cuda/shim_group.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

namespace {

constexpr std::uint64_t limit_bytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t device_bytes = std::uint64_t{1} << 40U;

// Of the process that begins, whoever asks.
const hippogriff::testing::SocketPlace& place() {
  static const hippogriff::testing::SocketPlace the_place;
  return the_place;
}

std::string address() {
#ifdef HIPPOGRIFF_BEHIND_SERVER
  static const hippogriff::testing::RunningServer server(place().options());
  return "unix:" + place().path();
#else
  return place().segment_path();
#endif
}

}  // namespace

hippogriff::node::NodeClient& hippogriff::testing::leader() {
  static const std::unique_ptr<node::NodeClient> the_leader = noded::open_node(address());
  return *the_leader;
}

namespace {

// Reserves, and tells the shim of it.
void prepare() {
  hippogriff::node::NodeClient& leader = hippogriff::testing::leader();
  for (const char* name :
       {"GPU-01010101-0101-0101-0101-010101010101", "GPU-02020202-0202-0202-0202-020202020202"}) {
    leader.reserve({.device = leader.add_device(name, device_bytes), .size_bytes = limit_bytes});
  }
  // NOLINTBEGIN(concurrency-mt-unsafe): nobody else reads it yet
  ::setenv("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER, 1);
  ::setenv("HIPPOGRIFF_NODE", address().c_str(), 1);
  ::setenv("HIPPOGRIFF_RESERVATION", leader.leader().c_str(), 1);
  ::setenv("HIPPOGRIFF_MEMORY", "1", 1);  // not looked at
  ::setenv("HIPPOGRIFF_NVML", "", 1);
  // NOLINTEND(concurrency-mt-unsafe)
}

}  // namespace

int main(int argc, char** argv) {
  try {
    prepare();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
