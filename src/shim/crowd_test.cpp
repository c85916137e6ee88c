// Many commands at once on a GPU that has memory for some of them, with a driver and an NVML that
// tell of all processes: what the node promised the driver has, whoever allocates, frees, ends or
// is killed at any moment.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "node/outside.hpp"
#include "testing/effort.hpp"
#include "testing/node_segment.hpp"
#include "testing/null_cuda/null_cuda.hpp"
#include "testing/null_cuda/shared_gpu.hpp"

#include <cuda.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

namespace {

using hippogriff::testing::Child;
using hippogriff::testing::null_device_bytes;
using hippogriff::testing::SharedGpu;
using hippogriff::testing::TemporarySegment;
namespace node = hippogriff::node;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t context_bytes = 60 * mib;
constexpr std::uint64_t outside_bytes = 100 * mib;
constexpr int crowd = 8;
constexpr const char* gpu = "GPU-01010101-0101-0101-0101-010101010101";

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread yet
}

using Random = std::minstd_rand;

void pause_up_to(Random& random, unsigned milliseconds) {
  ::usleep(static_cast<useconds_t>(random() % (1000 * milliseconds + 1)));
}

// Who has what and who was promised what, for whoever looks for the cause.
int refused(const node::NodeOptions& options, const char* call) {
  std::string text = std::to_string(::getpid()) + ": " + call + " was refused. MiB by process:";
  for (const SharedGpu::Holder& holder : SharedGpu::of_process()->holders()) {
    text += " " + std::to_string(holder.pid) + ":" + std::to_string(holder.bytes / mib);
  }
  const node::NodeView view = node::Node(options).view();
  text += "; outside " + std::to_string(view.devices.at(0).outside_bytes / mib) + "; promised";
  for (const node::NodeView::Reservation& reservation : view.reservations) {
    text += " " + std::to_string(reservation.record.size_bytes / mib) + "/" +
            std::to_string(reservation.record.wanted_bytes / mib) + "+" +
            std::to_string(reservation.record.kept_bytes / mib);
  }
  static_cast<void>(std::fprintf(stderr, "%s\n", text.c_str()));
  return 1;
}

// What a program of a command does; 1 when a call was refused.
int run_program(const node::NodeOptions& options, Random& random, std::uint64_t memory_bytes) {
  pause_up_to(random, 20);
  HIPPO_NULL(null_cuda_context_bytes)(context_bytes);
  CUcontext context = nullptr;
  const bool made = cuInit(0) == CUDA_SUCCESS &&
                    (random() % 2 == 0 ? cuCtxCreate_v2(&context, 0, 0)
                                       : cuDevicePrimaryCtxRetain(&context, 0)) == CUDA_SUCCESS &&
                    cuCtxSetCurrent(context) == CUDA_SUCCESS;
  if (!made) {
    return refused(options, "a context");
  }
  pause_up_to(random, 10);
  const std::uint64_t parts = 1 + random() % 3;
  for (std::uint64_t rounds = 1 + random() % 3; rounds > 0; --rounds) {
    std::vector<CUdeviceptr> blocks(parts);
    for (CUdeviceptr& block : blocks) {
      if (cuMemAlloc_v2(&block, (memory_bytes - context_bytes) / parts) != CUDA_SUCCESS) {
        return refused(options, "an allocation");
      }
      pause_up_to(random, 3);
    }
    pause_up_to(random, 10);
    for (const CUdeviceptr block : blocks) {
      if (cuMemFree_v2(block) != CUDA_SUCCESS) {
        return refused(options, "freeing");
      }
    }
  }
  if (random() % 3 == 0) {
    ::kill(::getpid(), SIGKILL);
  }
  return 0;
}

// As `hippogriff run` does it: with the memory left for the first use, or reserved at the start.
int run_command(const node::NodeOptions& options, std::uint32_t seed) {
  Random random(seed);
  const std::uint64_t memory_bytes = context_bytes + (1 + random() % 150) * mib;
  node::Node leader(options);
  const std::uint32_t device = leader.add_device(gpu, null_device_bytes);
  const bool at_first_use = random() % 4 != 0;
  if (at_first_use) {
    leader.defer({.device = device, .size_bytes = memory_bytes});
  } else {
    node::OutsideLook look(leader, device, gpu);
    leader.reserve({.device = device,
                    .size_bytes = memory_bytes,
                    .timeout = std::chrono::seconds(60),
                    .interrupted = [&] {
                      look();
                      return false;
                    }});
  }
  set("HIPPOGRIFF_RESERVATION", leader.leader());
  set("HIPPOGRIFF_WAIT_MS", at_first_use ? "60000" : "");
  const int status = Child([&] { return run_program(options, random, memory_bytes); }).wait();
  return status == -SIGKILL ? 0 : status;
}

class Crowd : public ::testing::TestWithParam<node::Policy> {
 protected:
  void SetUp() override {
    set("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER);
    set("HIPPOGRIFF_NVML", HIPPOGRIFF_FAKE_NVML);
    set("HIPPOGRIFF_NODE", place.path());
    set("NULL_CUDA_SHARED_GPU", place.path() + "-gpu");
    set("FAKE_NVML_FILE", place.path() + "-nvml");
    std::ofstream(place.path() + "-nvml") << "gpu " << gpu << ' ' << null_device_bytes << " 0 0\n";
  }

  void TearDown() override {
    for (const char* end : {"-gpu", "-nvml"}) {
      static_cast<void>(::unlink((place.path() + end).c_str()));
    }
  }

  TemporarySegment place;
};

// One command after the other; 1 as soon as one was refused something.
int run_commands(const node::NodeOptions& options, std::uint32_t seed) {
  for (int round = 0; round < hippogriff::rounds_of(12); ++round, ++seed) {
    if (const int status = Child([&] { return run_command(options, seed); }).wait(); status != 0) {
      static_cast<void>(std::fprintf(stderr, "seed %u: status %d\n", seed, status));
      return 1;
    }
  }
  return 0;
}

TEST_P(Crowd, gets_from_the_driver_what_the_node_promised) {
  ASSERT_NE(SharedGpu::of_process(), nullptr);
  ASSERT_TRUE(SharedGpu::of_process()->hold(1, outside_bytes, null_device_bytes));
  const node::NodeOptions options = place.options(GetParam());
  const node::Node watcher(options);  // The books stay while commands come and go.
  std::uint32_t seed = std::random_device{}();
  std::vector<Child> places;
  for (int number = 0; number < crowd; ++number, seed += 1000) {
    places.emplace_back([&] { return run_commands(options, seed); });
  }
  for (Child& each : places) {
    EXPECT_EQ(each.wait(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies,
                         Crowd,
                         ::testing::Values(node::Policy::fifo, node::Policy::mmu),
                         [](const auto& policy) {
                           return policy.param == node::Policy::fifo ? "fifo" : "mmu";
                         });

}  // namespace
