// Contexts: what they take themselves (HIPPOGRIFF_CONTEXT_BYTES is 1 MiB here) and what dies with
// them.
#include "testing/null_cuda/shim_fixture.hpp"

#include <thread>
#include <vector>

namespace {

using hippogriff::testing::held_bytes;
using hippogriff::testing::limit_bytes;
using hippogriff::testing::mib;
using hippogriff::testing::used_bytes;

constexpr std::uint64_t context_bytes = mib;

class Contexts : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    HIPPO_NULL(null_cuda_context_bytes)(context_bytes);
    ASSERT_EQ(held_bytes(), 0U);
  }

  void TearDown() override {
    EXPECT_EQ(held_bytes(), 0U);
    // A new context alone: whatever an earlier one took has been given back.
    CUcontext context = nullptr;
    ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(used_bytes(), context_bytes);
    EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  }
};

TEST_F(Contexts, a_context_counts_and_frees_what_it_held_when_it_ends) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  const CUDA_ARRAY_DESCRIPTOR descriptor = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
  ASSERT_EQ(cuCtxCreate_v4(&context, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  ASSERT_EQ(cuArrayCreate_v2(&array, &descriptor), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + 5 * mib);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

TEST_F(Contexts, a_context_that_ends_leaves_the_others_memory_alone) {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(cuCtxDestroy_v2(first), CUDA_SUCCESS);
}

TEST_F(Contexts, destroying_what_is_no_context_changes_nothing) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy_v2(reinterpret_cast<CUcontext>(std::uintptr_t{1})),
            CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(used_bytes(), context_bytes);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

TEST_F(Contexts, a_context_that_does_not_fit_is_refused) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CUcontext more = nullptr;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, limit_bytes - context_bytes), CUDA_SUCCESS);
  const std::uint64_t calls = HIPPO_NULL(null_cuda_allocations)();
  EXPECT_EQ(cuCtxCreate_v2(&more, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(HIPPO_NULL(null_cuda_allocations)(), calls);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
}

TEST_F(Contexts, a_context_that_the_driver_refuses_does_not_count) {
  CUcontext context = nullptr;
  HIPPO_NULL(null_cuda_fail)(1);
  EXPECT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Contexts, the_primary_context_counts_once_and_ends_with_its_last_release) {
  CUcontext primary = nullptr;
  CUcontext again = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&again, 0), CUDA_SUCCESS);
  ASSERT_EQ(primary, again);
  ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

TEST_F(Contexts, resetting_the_primary_context_frees_its_memory) {
  CUcontext primary = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  ASSERT_EQ(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(held_bytes(), 0U);
  // Used again, it is made again.
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

TEST_F(Contexts, the_graphs_of_a_device_end_with_its_primary_context) {
  CUcontext primary = nullptr;
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec executable = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  parameters.bytesize = mib;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

TEST_F(Contexts, a_primary_context_made_through_a_private_table_is_found) {
  CUdeviceptr address = 0;
  HIPPO_NULL(null_cuda_make_primary_current)(0);
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), context_bytes + mib);
  EXPECT_EQ(used_bytes(), held_bytes());
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

TEST_F(Contexts, a_context_found_late_that_does_not_fit_lets_nothing_be_allocated) {
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  CUdeviceptr more = 0;
  ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&address, limit_bytes - context_bytes), CUDA_SUCCESS);
  HIPPO_NULL(null_cuda_make_primary_current)(0);
  EXPECT_EQ(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used_bytes(), limit_bytes);
  EXPECT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

TEST_F(Contexts, without_a_context_the_driver_says_what_is_wrong) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&address, mib), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuMemAllocAsync(&address, mib, nullptr), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Contexts, threads_that_retain_and_release_leave_nothing_counted) {
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([] {
      for (int round = 0; round < 300; ++round) {
        CUcontext primary = nullptr;
        CUdeviceptr address = 0;
        ASSERT_EQ(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
        ASSERT_EQ(cuCtxSetCurrent(primary), CUDA_SUCCESS);
        ASSERT_EQ(cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
        ASSERT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
        ASSERT_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
