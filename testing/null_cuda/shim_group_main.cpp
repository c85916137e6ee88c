// Runs the shim's tests over the null driver in a process of a command: a leader has reserved the
// limit on each device before the shim reads its environment.
#include "node/node.hpp"
#include "testing/null_cuda/shim_group.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace {

constexpr std::uint64_t limit_bytes = std::uint64_t{64} << 20U;
constexpr std::uint64_t device_bytes = std::uint64_t{1} << 40U;

hippogriff::node::Node* the_leader = nullptr;

}  // namespace

hippogriff::node::Node& hippogriff::testing::leader() {
  return *the_leader;
}

int main(int argc, char** argv) {
  const std::string path = "/dev/shm/hippogriff-test-shim-" + std::to_string(::getpid());
  hippogriff::node::NodeOptions options;
  options.path = path;
  hippogriff::node::Node leader(options);
  the_leader = &leader;
  for (const char* name : {"GPU-01010101-0101-0101-0101-010101010101",
                           "GPU-02020202-0202-0202-0202-020202020202"}) {
    leader.reserve({.device = leader.add_device(name, device_bytes), .size_bytes = limit_bytes});
  }
  // NOLINTBEGIN(concurrency-mt-unsafe): the program has one thread yet
  ::setenv("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER, 1);
  ::setenv("HIPPOGRIFF_NODE", path.c_str(), 1);
  ::setenv("HIPPOGRIFF_RESERVATION", leader.leader().c_str(), 1);
  ::setenv("HIPPOGRIFF_MEMORY", "1", 1);  // not looked at
  ::setenv("HIPPOGRIFF_NVML", "", 1);
  // NOLINTEND(concurrency-mt-unsafe)
  testing::InitGoogleTest(&argc, argv);
  const int failures = RUN_ALL_TESTS();
  ::unlink(path.c_str());
  return failures;
}
