// Every way to allocate, counted as the driver counts it, and refused beyond the reservation.
#include "testing/null_cuda/shim_fixture.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace {

using hippogriff::testing::held_bytes;
using hippogriff::testing::kib;
using hippogriff::testing::limit_bytes;
using hippogriff::testing::mib;
using hippogriff::testing::used_bytes;

using Accounting = hippogriff::testing::ShimTest;

CUmemAllocationProp on_device(int device) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  return properties;
}

CUmemPoolProps pool_on(CUmemLocationType type, int id) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {type, id};
  return properties;
}

void trim_default_pool(CUdevice device) {
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, device), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
}

TEST_F(Accounting, plain_memory_counts_while_it_lives) {
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_EQ(cuMemAlloc_v2(&first, 3 * mib), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocManaged(&second, 5, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 3 * mib + 5);
  EXPECT_EQ(cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 5U);
  EXPECT_EQ(cuMemFree_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, more_than_the_reservation_is_refused_without_asking_the_driver) {
  CUdeviceptr all = 0;
  ASSERT_EQ(cuMemAlloc_v2(&all, limit_bytes), CUDA_SUCCESS);
  const std::uint64_t calls = HIPPO_NULL(null_cuda_allocations)();
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAlloc_v2(&more, 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc_v2(&more, UINT64_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(HIPPO_NULL(null_cuda_allocations)(), calls);
  EXPECT_EQ(used_bytes(), limit_bytes);
  EXPECT_EQ(cuMemFree_v2(all), CUDA_SUCCESS);
}

TEST_F(Accounting, what_the_driver_refuses_does_not_count) {
  CUdeviceptr address = 0;
  CUarray array = nullptr;
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = on_device(0);
  const CUDA_ARRAY_DESCRIPTOR descriptor = {16, 16, CU_AD_FORMAT_FLOAT, 4};
  std::size_t pitch = 0;
  HIPPO_NULL(null_cuda_fail)(5);
  EXPECT_EQ(cuMemAlloc_v2(&address, mib), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocAsync(&address, mib, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, 100, 100, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuArrayCreate_v2(&array, &descriptor), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemCreate(&handle, mib, &properties, 0), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, freeing_what_is_not_there_changes_nothing) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used_bytes(), mib);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, rows_count_with_their_pitch) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 513, 10, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 1024U);
  EXPECT_EQ(used_bytes(), 10240U);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(Accounting, rows_that_only_fit_without_their_pitch_are_refused) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, 257, limit_bytes / 512 + 1, 4),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_EQ(held_bytes(), 0U);
}

TEST_F(Accounting, a_pitch_that_nobody_expected_is_counted_or_freed_again) {
  CUdeviceptr address = 0;
  std::size_t pitch = 0;
  HIPPO_NULL(null_cuda_row_alignment)(4096);
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 40960U);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocPitch_v2(&address, &pitch, 100, limit_bytes / 4096 + 1, 4),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(held_bytes(), 0U);
  HIPPO_NULL(null_cuda_row_alignment)(32);
  ASSERT_EQ(cuMemAllocPitch_v2(&address, &pitch, 100, 10, 4), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 1280U);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  HIPPO_NULL(null_cuda_row_alignment)(512);
}

TEST_F(Accounting, arrays_count_by_their_elements) {
  CUarray flat = nullptr;
  CUarray deep = nullptr;
  CUmipmappedArray levels = nullptr;
  const CUDA_ARRAY_DESCRIPTOR two = {100, 0, CU_AD_FORMAT_HALF, 2};
  const CUDA_ARRAY3D_DESCRIPTOR three = {16, 16, 16, CU_AD_FORMAT_FLOAT, 4, 0};
  ASSERT_EQ(cuArrayCreate_v2(&flat, &two), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 400U);
  ASSERT_EQ(cuArray3DCreate_v2(&deep, &three), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 400 + 65536U);
  ASSERT_EQ(cuMipmappedArrayCreate(&levels, &three, 3), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 400 + 65536 + 65536 + 8192 + 1024U);
  EXPECT_EQ(cuArrayDestroy(flat), CUDA_SUCCESS);
  EXPECT_EQ(cuArrayDestroy(deep), CUDA_SUCCESS);
  EXPECT_EQ(cuMipmappedArrayDestroy(levels), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, a_pool_counts_what_it_keeps_until_the_driver_lets_go) {
  CUdeviceptr address = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, 4 * mib, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 4 * mib);
  ASSERT_EQ(cuMemAllocAsync_ptsz(&address, 3 * mib, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 4 * mib);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 3 * mib);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, memory_a_pool_keeps_makes_room_for_other_allocations) {
  CUdeviceptr pooled = 0;
  CUdeviceptr plain = 0;
  ASSERT_EQ(cuMemAllocAsync(&pooled, limit_bytes, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&plain, mib), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_EQ(cuMemFreeAsync(pooled, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc_v2(&plain, limit_bytes), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFree_v2(plain), CUDA_SUCCESS);
}

TEST_F(Accounting, pools_of_the_program_count_on_their_device) {
  CUmemoryPool pool = nullptr;
  CUdeviceptr address = 0;
  const CUmemPoolProps properties = pool_on(CU_MEM_LOCATION_TYPE_DEVICE, 1);
  ASSERT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocFromPoolAsync(&address, mib, pool, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_EQ(held_bytes(1), mib);
  CUdeviceptr more = 0;
  EXPECT_EQ(cuMemAllocFromPoolAsync_ptsz(&more, limit_bytes, pool, nullptr),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(held_bytes(1), mib);
  EXPECT_EQ(cuMemFreeAsync_ptsz(address, nullptr), CUDA_SUCCESS);
}

TEST_F(Accounting, the_pool_made_current_is_the_one_that_counts) {
  CUmemoryPool pool = nullptr;
  CUmemoryPool before = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuDeviceGetMemPool(&before, 0), CUDA_SUCCESS);
  const CUmemPoolProps properties = pool_on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  ASSERT_EQ(cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, mib, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemFreeAsync(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  ASSERT_EQ(cuDeviceSetMemPool(0, before), CUDA_SUCCESS);
  EXPECT_EQ(cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, memory_in_a_stream_counts_on_the_streams_device) {
  CUcontext other = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, mib, stream), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  ASSERT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  trim_default_pool(1);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

TEST_F(Accounting, physical_memory_counts_until_its_last_handle_and_mapping_are_gone) {
  constexpr CUdeviceptr address = 0x10000000000;
  const CUmemAllocationProp properties = on_device(0);
  CUmemGenericAllocationHandle handle = 0;
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(cuMemCreate(&handle, 2 * mib, &properties, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(address, mib, 0, handle, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuMemMap(address + mib, mib, 0, handle, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 2 * mib);
  ASSERT_EQ(cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 2 * mib);
  ASSERT_EQ(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(address)), CUDA_SUCCESS);
  ASSERT_EQ(cuMemUnmap(address, 2 * mib), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 2 * mib);
  EXPECT_EQ(cuMemRelease(again), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_EQ(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Accounting, a_graphs_memory_counts_from_instantiation_to_trim) {
  CUgraph graph = nullptr;
  CUgraph outer = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec executable = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS parameters = {};
  parameters.poolProps = pool_on(CU_MEM_LOCATION_TYPE_DEVICE, 0);
  parameters.bytesize = 3 * mib;
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&outer, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, outer, nullptr, 0, &parameters), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, graph), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&executable, outer, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 6 * mib);
  ASSERT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 6 * mib);
  ASSERT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);

  parameters.bytesize = limit_bytes;
  ASSERT_EQ(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &parameters), CUDA_SUCCESS);
  CUDA_GRAPH_INSTANTIATE_PARAMS how = {};
  EXPECT_EQ(cuGraphInstantiateWithParams(&executable, graph, &how), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(used_bytes(), 0U);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(outer), CUDA_SUCCESS);
}

TEST_F(Accounting, what_is_captured_counts_when_the_graph_is_instantiated) {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, mib, stream), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  EXPECT_EQ(cuGraphExecDestroy(executable), CUDA_SUCCESS);
  EXPECT_EQ(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(Accounting, only_what_a_stream_allocates_while_it_captures_is_the_graphs) {
  CUstream first = nullptr;
  CUstream second = nullptr;
  CUgraph graph = nullptr;
  std::array<CUdeviceptr, 4> address = {};
  ASSERT_EQ(cuStreamCreate(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&second, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture_v2(first, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address[0], mib, second), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  ASSERT_EQ(cuStreamBeginCapture_v2(second, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address[1], mib, second), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(first, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(first, &graph), CUDA_ERROR_ILLEGAL_STATE);
  ASSERT_EQ(cuMemAllocAsync(&address[2], mib, second), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  ASSERT_EQ(cuStreamEndCapture(second, &graph), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address[3], mib, second), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 2 * mib);
  EXPECT_EQ(cuMemFreeAsync(address[0], first), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address[3], second), CUDA_SUCCESS);
  trim_default_pool(0);
  EXPECT_EQ(cuStreamDestroy_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy_v2(first), CUDA_SUCCESS);
}

// What headers older than the function do not declare.
template <typename Signature>
Signature* newer_function(const char* name, int version) {
  void* found = nullptr;
  EXPECT_EQ(cuGetProcAddress_v2(name, &found, version, 0, nullptr), CUDA_SUCCESS) << name;
  return reinterpret_cast<Signature*>(found);
}

// How often the driver is asked whether a stream captures while one allocates and frees there.
std::uint64_t questions_of_an_allocation() {
  const auto questions = [] { return HIPPO_NULL(null_cuda_capture_questions)(); };
  const std::uint64_t before = questions();
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocAsync(&address, kib, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  trim_default_pool(0);
  return questions() - before;
}

TEST_F(Accounting, what_is_captured_again_into_a_graph_is_the_graphs) {
  const auto begin = newer_function<CUresult(CUstream, CUstreamCaptureMode, CUgraph, void*, void*)>(
      "cuStreamBeginRecaptureToGraph", 13030);
  ASSERT_NE(begin, nullptr);
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUgraph same = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(begin(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, graph, nullptr, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAllocAsync(&address, mib, stream), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
  ASSERT_EQ(cuStreamEndCapture(stream, &same), CUDA_SUCCESS);
  EXPECT_EQ(same, graph);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(questions_of_an_allocation(), 0U);
}

TEST_F(Accounting, a_capture_for_graphics_refuses_by_the_drivers_words_and_ends) {
  const auto begin = newer_function<CUresult(CUstream, void*)>("cuStreamBeginCaptureToCig", 13010);
  const auto end = newer_function<CUresult(CUstream)>("cuStreamEndCaptureToCig", 13010);
  ASSERT_TRUE(begin != nullptr && end != nullptr);
  CUstream stream = nullptr;
  CUdeviceptr address = 0;
  int parameters = 0;
  ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
  EXPECT_EQ(begin(stream, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(questions_of_an_allocation(), 0U) << "nothing has begun";
  ASSERT_EQ(begin(stream, &parameters), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAllocAsync(&address, 2 * limit_bytes, stream),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_GT(questions_of_an_allocation(), 0U);
  EXPECT_EQ(end(stream), CUDA_SUCCESS);
  EXPECT_EQ(end(stream), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(questions_of_an_allocation(), 0U) << "it has ended";
  EXPECT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, a_stream_with_the_handle_of_one_that_ended_has_its_own_device) {
  CUcontext other = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuCtxCreate_v2(&other, 0, 1), CUDA_SUCCESS);
  CUstream stream = nullptr;
  CUstream again = nullptr;
  // The null driver's handles are addresses of its heap: one is handed out again soon.
  for (int attempt = 0; attempt < 100 && (stream == nullptr || again != stream); ++attempt) {
    ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&address, mib, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuMemFreeAsync(address, stream), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSetCurrent(other), CUDA_SUCCESS);
    ASSERT_EQ(cuStreamCreate(&again, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuMemAllocAsync(&address, 3 * mib, again), CUDA_SUCCESS);
    EXPECT_EQ(used_bytes(), 3 * mib);
    ASSERT_EQ(cuMemFreeAsync(address, again), CUDA_SUCCESS);
    trim_default_pool(0);
    trim_default_pool(1);
    ASSERT_EQ(cuStreamDestroy_v2(again), CUDA_SUCCESS);
  }
  EXPECT_EQ(cuCtxDestroy_v2(other), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
  if (again != stream) {
    GTEST_SKIP() << "the heap hands out no address again here";
  }
}

TEST_F(Accounting, memory_of_another_process_does_not_count) {
  CUdeviceptr address = 0;
  ASSERT_EQ(cuIpcOpenMemHandle_v2(&address, {}, 1), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

TEST_F(Accounting, the_device_is_as_large_as_the_reservation) {
  std::size_t size_bytes = 0;
  ASSERT_EQ(cuDeviceTotalMem_v2(&size_bytes, 0), CUDA_SUCCESS);
  EXPECT_EQ(size_bytes, limit_bytes);
}

TEST_F(Accounting, free_memory_is_never_more_than_the_devices_own) {
  // Others leave less free than the reservation would: memory past the shim plays their part.
  const auto alloc = hippogriff::testing::null_function<decltype(cuMemAlloc_v2)>("cuMemAlloc_v2");
  const auto free = hippogriff::testing::null_function<decltype(cuMemFree_v2)>("cuMemFree_v2");
  CUdeviceptr foreign = 0;
  ASSERT_EQ(alloc(&foreign, hippogriff::testing::null_device_bytes - mib), CUDA_SUCCESS);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  ASSERT_EQ(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(free_bytes, mib);
  EXPECT_EQ(total_bytes, limit_bytes);
  ASSERT_EQ(free(foreign), CUDA_SUCCESS);
}

TEST_F(Accounting, functions_found_by_name_count_as_well) {
  void* found = nullptr;
  CUdeviceptr address = 0;
  ASSERT_EQ(cuGetProcAddress_v2("cuMemAlloc", &found, 13000, 0, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(reinterpret_cast<decltype(&cuMemAlloc_v2)>(found)(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), mib);
  ASSERT_EQ(cuGetProcAddress_v2("cuMemFreeAsync", &found, 13000, 2, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(reinterpret_cast<decltype(&cuMemFreeAsync)>(found)(address, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(used_bytes(), 0U);
}

// Ends the child with 0 when all is right; a child that hangs is ended by the alarm.
template <typename Check>
int exit_status_of_child(Check&& check) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(check() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST_F(Accounting, the_child_of_a_fork_holds_nothing) {
  if (hippogriff::testing::counts_processes_together()) {
    GTEST_SKIP() << "the processes of a command are counted together: see NodeLedger's tests";
  }
  CUdeviceptr address = 0;
  ASSERT_EQ(cuMemAlloc_v2(&address, mib), CUDA_SUCCESS);
  EXPECT_EQ(exit_status_of_child([] { return used_bytes() == 0; }), 0);
  EXPECT_EQ(used_bytes(), mib);
  EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
}

TEST_F(Accounting, a_fork_while_other_threads_allocate_leaves_no_lock_behind) {
  if (hippogriff::testing::counts_processes_together()) {
    GTEST_SKIP() << "the processes of a command are counted together: see NodeLedger's tests";
  }
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int index = 0; index < 3; ++index) {
    threads.emplace_back([&] {
      cuCtxSetCurrent(context);
      while (!stop.load()) {
        CUdeviceptr address = 0;
        EXPECT_EQ(cuMemAlloc_v2(&address, kib), CUDA_SUCCESS);
        EXPECT_EQ(cuMemFree_v2(address), CUDA_SUCCESS);
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    const auto child = [] {
      CUdeviceptr address = 0;
      return cuMemAlloc_v2(&address, kib) == CUDA_SUCCESS && used_bytes() == kib &&
             cuMemFree_v2(address) == CUDA_SUCCESS && used_bytes() == 0;
    };
    EXPECT_EQ(exit_status_of_child(child), 0);
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(used_bytes(), 0U);
}

}  // namespace
