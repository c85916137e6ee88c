// The driver functions themselves, as cuda.h declares them: modules and kernels. Of a kernel only
// its name is taken: what runs is the same algorithm, compiled for the host.
#include "checksum/xxh3_kernel.hpp"
#include "checksum/xxh3_lane_loop.hpp"
#include "testing/fake_cuda/fake_state.hpp"

#include <cuda.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

#define HIPPO_FAKE_ENTER_WITH_CONTEXT()                                                 \
  if (const CUresult injected = fake_cuda::enter(__func__); injected != CUDA_SUCCESS) { \
    return injected;                                                                    \
  }                                                                                     \
  if (fake_cuda::context_stack().empty()) {                                             \
    return CUDA_ERROR_INVALID_CONTEXT;                                                  \
  }

using fake_cuda::state;

namespace xxh3 = hippogriff::xxh3;

namespace {

// The stand-in for the one kernel there is.
const CUfunction xxh3_function = reinterpret_cast<CUfunction>(&xxh3::hash_by_lanes);

// What a GPU would end the context for.
void fail_illegal_address() {
  std::fputs("fake CUDA: a kernel reads what is no device memory\n", stderr);
  std::abort();
}

void run_xxh3(const xxh3::Launch& launch) {
  const std::span blocks(reinterpret_cast<const xxh3::Block*>(launch.blocks), launch.count);
  auto* checksums = reinterpret_cast<std::uint64_t*>(launch.checksums);
  for (const xxh3::Block& block : blocks) {
    if (!fake_cuda::is_device_range(block.address, block.size_bytes)) {
      fail_illegal_address();
    }
    *checksums++ =
        xxh3::hash_by_lanes(reinterpret_cast<const std::uint8_t*>(block.address), block.size_bytes);
  }
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuModuleLoadData(CUmodule* module, const void* image) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  constexpr std::uint32_t fatbin_magic = 0xBA55ED50;
  std::uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != fatbin_magic) {
    return CUDA_ERROR_INVALID_IMAGE;
  }
  const std::lock_guard lock(state().mutex);
  static std::uintptr_t made = 0;
  *module = reinterpret_cast<CUmodule>(++made);  // NOLINT(performance-no-int-to-ptr): a mere name
  state().modules.insert(*module);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  return state().modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  if (!state().modules.contains(module)) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *function = xxh3_function;
  return std::string_view(name) == xxh3::kernel_name ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

// NOLINTNEXTLINE(readability-function-size): theirs
CUresult CUDAAPI cuLaunchKernel(CUfunction function,
                                unsigned int grid_x,
                                unsigned int grid_y,
                                unsigned int grid_z,
                                unsigned int group_x,
                                unsigned int group_y,
                                unsigned int group_z,
                                unsigned int,
                                CUstream stream,
                                void** arguments,
                                void**) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  xxh3::Launch launch{};
  std::memcpy(&launch, arguments[0], sizeof launch);
  const bool right_shape = grid_y * grid_z * group_y * group_z == 1 &&
                           group_x == xxh3::threads_per_group && launch.count > 0 &&
                           grid_x == (launch.count - 1) / xxh3::blocks_per_group + 1;
  if (function != xxh3_function || !right_shape) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return fake_cuda::push(stream, [launch](const std::stop_token&) { run_xxh3(launch); });
}

#pragma GCC visibility pop
}  // extern "C"
