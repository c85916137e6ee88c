// A command whose reservation was left for its first use: what claims it, what does not, and what
// programs see when it is not there in time. Everything runs in children: this process reads the
// node alone.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "testing/node_segment.hpp"
#include "testing/null_cuda/null_cuda.hpp"

#include <cuda.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::no_wait;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
namespace node = hippogriff::node;

constexpr std::uint64_t mib = std::uint64_t{1} << 20U;
constexpr std::uint64_t device_bytes = 100 * mib;
constexpr std::uint64_t wish_bytes = 64 * mib;

void set(const char* name, const std::string& value) {
  ::setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread yet
}

// In a child, before CUDA is used there.
bool make_context() {
  CUcontext context = nullptr;
  return cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS;
}

CUresult allocate(std::uint64_t size_bytes) {
  CUdeviceptr memory = 0;
  return cuMemAlloc_v2(&memory, size_bytes);
}

class FirstUse : public ::testing::Test {
 protected:
  FirstUse() : leader(place.options(node::Policy::fifo)), other(place.options()) {
    for (const char* name :
         {"GPU-01010101-0101-0101-0101-010101010101", "GPU-02020202-0202-0202-0202-020202020202"}) {
      leader.defer({.device = leader.add_device(name, device_bytes), .size_bytes = wish_bytes});
      other.add_device(name, device_bytes);
    }
    set("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER);
    set("HIPPOGRIFF_NVML", "");
    set("HIPPOGRIFF_NODE", place.path());
    set("HIPPOGRIFF_RESERVATION", leader.leader());
    set("HIPPOGRIFF_WAIT_MS", "60000");
  }

  [[nodiscard]] std::uint64_t neighbour_takes(std::uint64_t size_bytes) {
    return other.reserve({.device = 0, .size_bytes = size_bytes});
  }

  TemporarySegment place;
  node::Node leader;
  node::Node other;
};

TEST_F(FirstUse, waits_in_the_first_allocation_and_shows_the_whole_before_it) {
  const std::uint64_t all = neighbour_takes(device_bytes);
  Child program([] {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    std::size_t device_total_bytes = 0;
    const bool shown = make_context() &&
                       cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
                       cuDeviceTotalMem_v2(&device_total_bytes, 0) == CUDA_SUCCESS;
    if (!shown || free_bytes != wish_bytes || total_bytes != wish_bytes ||
        device_total_bytes != wish_bytes) {
      return 1;
    }
    if (allocate(wish_bytes + 1) != CUDA_ERROR_OUT_OF_MEMORY) {
      return 2;  // at once: it can never fit
    }
    if (allocate(40 * mib) != CUDA_SUCCESS) {
      return 3;
    }
    const bool rest = cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS &&
                      free_bytes == 24 * mib && total_bytes == wish_bytes;
    if (!rest || allocate(25 * mib) != CUDA_ERROR_OUT_OF_MEMORY) {
      return 4;
    }
    ::pause();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  EXPECT_EQ(held(other), device_bytes);
  other.release(all);
  EXPECT_TRUE(eventually([&] { return leader.group_used_bytes(0) == 40 * mib; }));
  EXPECT_EQ(held(other), wish_bytes) << "of the one device it used";
  program.send(SIGKILL);
  EXPECT_EQ(program.wait(), -SIGKILL) << "it had not ended before";
  EXPECT_EQ(held(other), wish_bytes) << "it stays until the command has ended";
}

TEST_F(FirstUse, every_kind_of_allocation_is_one) {
  const std::array<std::pair<const char*, std::function<CUresult()>>, 6> kinds = {{
      {"plain", [] { return allocate(mib); }},
      {"pitched",
       [] {
         CUdeviceptr memory = 0;
         std::size_t pitch = 0;
         return cuMemAllocPitch_v2(&memory, &pitch, 100, 100, 4);
       }},
      {"managed",
       [] {
         CUdeviceptr memory = 0;
         return cuMemAllocManaged(&memory, mib, CU_MEM_ATTACH_GLOBAL);
       }},
      {"array",
       [] {
         CUarray array = nullptr;
         const CUDA_ARRAY_DESCRIPTOR descriptor = {16, 16, CU_AD_FORMAT_FLOAT, 4};
         return cuArrayCreate_v2(&array, &descriptor);
       }},
      {"in a stream",
       [] {
         CUdeviceptr memory = 0;
         return cuMemAllocAsync(&memory, mib, nullptr);
       }},
      {"physical",
       [] {
         CUmemGenericAllocationHandle handle = 0;
         CUmemAllocationProp properties = {};
         properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
         properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
         return cuMemCreate(&handle, 2 * mib, &properties, 0);
       }},
  }};
  for (const auto& [name, call] : kinds) {
    node::Node leads(place.options());
    leads.defer(
        {.device = leads.add_device("GPU-01010101-0101-0101-0101-010101010101", device_bytes),
         .size_bytes = wish_bytes});
    set("HIPPOGRIFF_RESERVATION", leads.leader());
    Child program(
        [allocate = &call] { return make_context() && (*allocate)() == CUDA_SUCCESS ? 0 : 1; });
    EXPECT_EQ(program.wait(), 0) << name;
    EXPECT_EQ(held(other), wish_bytes) << name;
  }
}

TEST_F(FirstUse, what_the_driver_refuses_of_it_is_refused_at_once_and_stays_free) {
  Child program([] {
    if (!make_context()) {
      return 1;
    }
    HIPPO_NULL(null_cuda_fail)(1);
    const std::uint64_t before = HIPPO_NULL(null_cuda_allocations)();
    if (allocate(mib) != CUDA_ERROR_OUT_OF_MEMORY ||
        HIPPO_NULL(null_cuda_allocations)() != before + 1) {
      return 2;
    }
    return allocate(wish_bytes) == CUDA_SUCCESS ? 0 : 3;
  });
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(FirstUse, is_not_to_look_or_to_make_a_context_unless_contexts_count) {
  const auto look_around = [] {
    std::size_t size_bytes = 0;
    if (!make_context() || cuDeviceTotalMem_v2(&size_bytes, 0) != CUDA_SUCCESS) {
      return 1;
    }
    // As the CUDA runtime does it, behind the shim's back.
    HIPPO_NULL(null_cuda_make_primary_current)(0);
    return cuMemGetInfo_v2(&size_bytes, &size_bytes) == CUDA_SUCCESS ? 0 : 2;
  };
  EXPECT_EQ(Child(look_around).wait(), 0);
  EXPECT_EQ(held(other), 0U);
  EXPECT_EQ(Child([&] {
              set("HIPPOGRIFF_CONTEXT_BYTES", "1MiB");
              return look_around();
            }).wait(),
            0);
  EXPECT_EQ(held(other), wish_bytes);
}

TEST_F(FirstUse, fails_as_out_of_memory_and_says_why_when_the_wait_is_too_long) {
  const std::uint64_t all = neighbour_takes(device_bytes);
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  Child program([&] {
    ::dup2(ends[1], STDERR_FILENO);
    set("HIPPOGRIFF_WAIT_MS", "50");
    if (!make_context() || allocate(mib) != CUDA_ERROR_OUT_OF_MEMORY) {
      return 1;
    }
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    // A program may try again later.
    return cuMemGetInfo_v2(&free_bytes, &total_bytes) == CUDA_SUCCESS && free_bytes == wish_bytes
               ? 0
               : 2;
  });
  EXPECT_EQ(program.wait(), 0);
  ::close(ends[1]);
  std::string said(1000, '\0');
  const ssize_t size = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  ASSERT_GT(size, 0);
  said.resize(static_cast<std::size_t>(size));
  EXPECT_NE(said.find("not free within 50 ms"), std::string::npos) << said;
  EXPECT_NE(said.find("GPU-01010101"), std::string::npos) << said;
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_EQ(waiting(other), 0U);
  other.release(all);
}

TEST_F(FirstUse, nothing_is_allocated_where_a_variable_means_nothing) {
  for (const char* name : {"HIPPOGRIFF_GROW", "HIPPOGRIFF_WAIT_MS", "HIPPOGRIFF_RESERVATION"}) {
    Child program([&] {
      set(name, "nonsense");
      return make_context() && allocate(mib) == CUDA_ERROR_OUT_OF_MEMORY ? 0 : 1;
    });
    EXPECT_EQ(program.wait(), 0) << name;
  }
  EXPECT_EQ(held(other), 0U);
}

TEST_F(FirstUse, variables_of_a_command_mean_nothing_without_a_node) {
  Child program([] {
    set("HIPPOGRIFF_NODE", "off");
    set("HIPPOGRIFF_GROW", "yes");
    return make_context() && allocate(mib) == CUDA_SUCCESS ? 0 : 1;
  });
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(FirstUse, growth_that_is_refused_again_and_again_is_told_a_few_times) {
  int ends[2] = {-1, -1};
  ASSERT_EQ(::pipe(ends), 0);
  Child program([&] {
    ::dup2(ends[1], STDERR_FILENO);
    set("HIPPOGRIFF_GROW", "1");
    if (!make_context() || allocate(mib) != CUDA_SUCCESS) {
      return 1;
    }
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (allocate(2 * device_bytes) != CUDA_ERROR_OUT_OF_MEMORY) {
        return 2;
      }
    }
    return 0;
  });
  EXPECT_EQ(program.wait(), 0);
  ::close(ends[1]);
  std::string said(100'000, '\0');
  const ssize_t size = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  ASSERT_GT(size, 0);
  said.resize(static_cast<std::size_t>(size));
  EXPECT_NE(said.find("the device has"), std::string::npos) << said;
  EXPECT_LT(std::ranges::count(said, '\n'), 6) << said;
}

TEST_F(FirstUse, one_process_asks_for_all_and_another_when_that_is_killed) {
  const std::uint64_t all = neighbour_takes(device_bytes);
  const auto program = [] {
    if (!make_context() || allocate(10 * mib) != CUDA_SUCCESS) {
      return 1;
    }
    ::pause();
    return 0;
  };
  Child first(program);
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  Child second(program);
  ASSERT_TRUE(eventually([&] { return other.view().clients.size() == 4; }));
  EXPECT_EQ(waiting(other), 1U);
  first.send(SIGKILL);
  first.wait();
  other.release(all);
  EXPECT_TRUE(eventually([&] { return leader.group_used_bytes(0) == 10 * mib; }));
  EXPECT_EQ(held(other), wish_bytes);
}

TEST_F(FirstUse, threads_of_a_program_wait_together) {
  const std::uint64_t all = neighbour_takes(device_bytes);
  Child program([] {
    CUcontext context = nullptr;
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS) {
      return 1;
    }
    std::atomic<int> there{0};
    std::array<std::thread, 4> threads;
    for (std::thread& thread : threads) {
      thread = std::thread([&] {
        there += cuCtxSetCurrent(context) == CUDA_SUCCESS && allocate(16 * mib) == CUDA_SUCCESS;
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    return there == 4 ? 0 : 2;
  });
  ASSERT_TRUE(eventually([&] { return waiting(other) == 1; }));
  other.release(all);
  EXPECT_EQ(program.wait(), 0);
}

TEST_F(FirstUse, growth_is_for_what_comes_after_it) {
  Child program([] {
    set("HIPPOGRIFF_GROW", "1");
    return make_context() && allocate(80 * mib) == CUDA_SUCCESS ? 0 : 1;
  });
  EXPECT_EQ(program.wait(), 0);
  EXPECT_EQ(held(other), 80 * mib);
}

}  // namespace
