// Many commands at once on a GPU that has memory for some of them, with a driver and an NVML that
// tell of all processes: what the node promised the driver has, whoever allocates, frees, ends or
// is killed meanwhile.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "node/outside.hpp"
#include "noded/open_node.hpp"
#include "testing/effort.hpp"
#include "testing/node_server.hpp"
#include "testing/null_cuda/null_cuda.hpp"
#include "testing/null_cuda/shared_gpu.hpp"
#include "testing/temporary_folder.hpp"

#include <cuda.h>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using hippogriff::TemporaryFolder;
using hippogriff::testing::Answers;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::null_device_bytes;
using hippogriff::testing::SharedGpu;
using hippogriff::testing::SocketPlace;
namespace node = hippogriff::node;
namespace noded = hippogriff::noded;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t context_bytes = 60 * mib;
constexpr std::size_t crowd = 8;

const std::string& gpu() {
  static const std::string uuid = "GPU-01010101-0101-0101-0101-010101010101";
  return uuid;
}

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread yet
}

using Random = std::mt19937;

void pause_up_to(Random& random, unsigned milliseconds) {
  ::usleep(static_cast<useconds_t>(random() % (1000 * milliseconds + 1)));
}

// Who has what and who was promised what, for whoever looks for the cause.
int refused(const std::string& address, const char* call) {
  std::string text = std::to_string(::getpid()) + ": " + call + " was refused. MiB by process:";
  for (const SharedGpu::Holder& holder : SharedGpu::of_process()->holders()) {
    text += " " + std::to_string(holder.pid) + ":" + std::to_string(holder.bytes / mib);
  }
  const node::NodeView view = noded::open_node(address)->view();
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
int run_program(const std::string& address, Random& random, std::uint64_t memory_bytes) {
  pause_up_to(random, 20);
  HIPPO_NULL(null_cuda_context_bytes)(context_bytes);
  CUcontext context = nullptr;
  const bool made = cuInit(0) == CUDA_SUCCESS &&
                    (random() % 2 == 0 ? cuCtxCreate_v2(&context, 0, 0)
                                       : cuDevicePrimaryCtxRetain(&context, 0)) == CUDA_SUCCESS &&
                    cuCtxSetCurrent(context) == CUDA_SUCCESS;
  if (!made) {
    return refused(address, "a context");
  }
  pause_up_to(random, 10);
  const std::uint64_t parts = 1 + random() % 3;
  for (std::uint64_t rounds = 1 + random() % 3; rounds > 0; --rounds) {
    std::vector<CUdeviceptr> blocks(parts);
    for (CUdeviceptr& block : blocks) {
      if (cuMemAlloc_v2(&block, (memory_bytes - context_bytes) / parts) != CUDA_SUCCESS) {
        return refused(address, "an allocation");
      }
      pause_up_to(random, 3);
    }
    pause_up_to(random, 10);
    if (random() % 8 == 0) {
      ::kill(::getpid(), SIGKILL);
    }
    for (const CUdeviceptr block : blocks) {
      if (cuMemFree_v2(block) != CUDA_SUCCESS) {
        return refused(address, "freeing");
      }
    }
  }
  if (random() % 3 == 0) {
    ::kill(::getpid(), SIGKILL);
  }
  return 0;
}

// All commands begin at once, when each has said what it wants: one that comes later may have no
// room for its context, which its users are told.
class Beginning {
 public:
  Beginning() { EXPECT_EQ(::pipe(ends_.data()), 0); }

  ~Beginning() { begin(); }

  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;

  // In a child.
  void wait() {
    ::close(ends_[1]);
    static_cast<void>(::write(ready_.to(), "1", 1));
    char byte = 0;
    while (::read(ends_[0], &byte, 1) > 0) {
    }
  }

  // Instead, where it cannot.
  void give_up() const { static_cast<void>(::write(ready_.to(), "0", 1)); }

  void wait_for(std::size_t commands) const { EXPECT_EQ(ready_.next(commands).size(), commands); }

  void begin() {
    for (int& end : ends_) {
      if (end >= 0) {
        ::close(std::exchange(end, -1));
      }
    }
  }

 private:
  Answers ready_;
  std::array<int, 2> ends_{};
};

// As `hippogriff run` does it: with the memory left for the first use, or reserved at the start.
int run_command(const std::string& address, std::uint32_t seed, Beginning& beginning) {
  Random random(seed);
  const std::uint64_t memory_bytes = context_bytes + (1 + random() % 150) * mib;
  const auto leader = noded::open_node(address);
  const std::uint32_t device = leader->add_device(gpu(), null_device_bytes);
  const bool at_first_use = random() % 4 != 0;
  if (at_first_use) {
    leader->defer({.device = device, .size_bytes = memory_bytes});
  }
  beginning.wait();
  if (!at_first_use) {
    node::OutsideLook look(*leader, device, gpu());
    leader->reserve({.device = device,
                     .size_bytes = memory_bytes,
                     .timeout = std::chrono::seconds(60),
                     .interrupted = [&] {
                       look();
                       return false;
                     }});
  }
  set("HIPPOGRIFF_RESERVATION", leader->leader());
  set("HIPPOGRIFF_WAIT_MS", at_first_use ? "60000" : "");
  const int status = Child([&] { return run_program(address, random, memory_bytes); }).wait();
  return status == -SIGKILL ? 0 : status;
}

int begin_command(const std::string& address, std::uint32_t seed, Beginning& beginning) {
  try {
    return run_command(address, seed, beginning);
  } catch (const std::exception&) {
    beginning.give_up();
    throw;
  }
}

struct Where {
  const char* name;
  node::Policy policy;
  bool has_server;
};

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest's
void PrintTo(const Where& where, std::ostream* to) {
  *to << where.name;
}

class Crowd : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    set("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER);
    set("HIPPOGRIFF_NVML", HIPPOGRIFF_FAKE_NVML);
    set("NULL_CUDA_SHARED_GPU", files().file("gpu"));
    set("FAKE_NVML_FILE", files().file("nvml"));
    std::ofstream(files().file("nvml")) << "gpu " << gpu() << ' ' << null_device_bytes << " 0 0\n";
    set("HIPPOGRIFF_NODE", address());
    if (GetParam().has_server) {
      server.emplace([this] {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        hippogriff::noded::Server(place.options(GetParam().policy)).run();
        return 0;
      });
      ASSERT_TRUE(hippogriff::testing::serves(place.path()));
    }
  }

  [[nodiscard]] std::string address() const {
    return GetParam().has_server ? "unix:" + place.path() : place.segment_path();
  }

  // The process's, as the GPU is.
  static const TemporaryFolder& files() {
    static const TemporaryFolder folder{"/tmp"};
    return folder;
  }

  SocketPlace place;
  std::optional<Child> server;
};

TEST_P(Crowd, gets_from_the_driver_what_the_node_promised) {
  ASSERT_NE(SharedGpu::of_process(), nullptr);
  const auto watcher = noded::open_node(address(), {.path = {}, .policy = GetParam().policy});
  const std::uint32_t device = watcher->add_device(gpu(), null_device_bytes);
  watcher->set_unreserved(device, {.context_bytes = context_bytes});
  std::uint32_t seed = std::random_device{}();
  for (std::uint64_t round = 0; round < std::uint64_t{hippogriff::rounds_of(12)}; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::uint64_t outside_bytes = (60 + 20 * (round % 3)) * mib;
    ASSERT_TRUE(SharedGpu::of_process()->hold(1, outside_bytes, null_device_bytes));
    ASSERT_TRUE(eventually([&] {
      node::look_outside(*watcher, device, gpu());
      return watcher->view().devices.at(0).outside_bytes == outside_bytes;
    }));
    Beginning beginning;
    std::vector<Child> commands;
    for (std::size_t number = 0; number < crowd; ++number, ++seed) {
      commands.emplace_back([&] { return begin_command(address(), seed, beginning); });
    }
    beginning.wait_for(crowd);
    beginning.begin();
    for (Child& command : commands) {
      EXPECT_EQ(command.wait(), 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Places,
                         Crowd,
                         ::testing::Values(Where{"fifo", node::Policy::fifo, false},
                                           Where{"mmu", node::Policy::mmu, false},
                                           Where{"server", node::Policy::mmu, true}),
                         [](const auto& where) { return where.param.name; });

}  // namespace
