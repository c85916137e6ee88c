// The driver functions themselves, as cuda.h declares them: modules and kernels. Of a kernel only
// its name is taken: what runs is the same algorithm, compiled for the host.
#include "array/row_moves.hpp"
#include "checksum/xxh3_kernel.hpp"
#include "checksum/xxh3_lane_loop.hpp"
#include "testing/fake_cuda/fake_state.hpp"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>

using fake_cuda::state;

namespace ondemand = hippogriff::ondemand;
namespace xxh3 = hippogriff::xxh3;

namespace {

struct Shape {
  unsigned groups = 0;
  unsigned threads = 0;
};

using Kernel = CUresult(const Shape& shape, CUstream stream, const void* argument);

// What a GPU would end the context for.
void fail_illegal_address() {
  std::fputs("fake CUDA: a kernel reads what is no device memory\n", stderr);
  std::abort();
}

void run_xxh3(const xxh3::Launch& launch, unsigned count) {
  const std::span blocks(reinterpret_cast<const xxh3::Block*>(launch.blocks), count);
  auto* checksums = reinterpret_cast<std::uint64_t*>(launch.checksums);
  for (const xxh3::Block& block : blocks) {
    if (!fake_cuda::is_device_range(block.address, block.size_bytes)) {
      fail_illegal_address();
    }
    *checksums++ =
        xxh3::hash_by_lanes(reinterpret_cast<const std::uint8_t*>(block.address), block.size_bytes);
  }
}

CUresult launch_xxh3(const Shape& shape, CUstream stream, const void* argument) {
  xxh3::Launch launch{};
  std::memcpy(&launch, argument, sizeof launch);
  if (shape.groups == 0 || shape.threads != xxh3::threads_per_block) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return fake_cuda::push(
      stream, [launch, count = shape.groups](const std::stop_token&) { run_xxh3(launch, count); });
}

// By one thread, in order.
template <bool Writes>
void move_rows(const ondemand::RowMoves& moves) {
  const std::uint64_t each = moves.parts_each();
  for (std::uint64_t part = 0; part < moves.count * each; ++part) {
    moves.move_part<Writes>(ondemand::Alone{}, part / each, part % each);
  }
}

void flush_lines(const ondemand::RowMoves& moves) {
  for (std::uint32_t place = 0; place < moves.cache.places.place_count(); ++place) {
    moves.note(moves.cache.noted(moves.cache.flush_places(ondemand::Alone{}, place)));
  }
}

void ask_for_rows(const ondemand::RowMoves& moves) {
  for (std::uint64_t i = 0; i < moves.ask_count() && moves.ask(ondemand::Alone{}, i); ++i) {
  }
}

void read_past(const ondemand::RowMoves& moves) {
  for (std::uint64_t row = 0; row < moves.count; ++row) {
    moves.read_past(ondemand::Alone{}, row);
  }
}

template <void (*Run)(const ondemand::RowMoves&)>
CUresult launch_rows(const Shape& shape, CUstream stream, const void* argument) {
  ondemand::RowMoves moves;
  std::memcpy(&moves, argument, sizeof moves);
  moves.cache.accesses = nullptr;  // the kernels are compiled so that they do not count
  if (shape.groups == 0 || shape.threads != ondemand::row_kernel_threads) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return fake_cuda::push(stream, [moves](const std::stop_token&) { Run(moves); });
}

struct NamedKernel {
  std::string_view name;
  Kernel* kernel;
};

// The stand-ins for the kernels there are; a function's handle is the address of its entry.
constexpr std::array kernels{
    NamedKernel{xxh3::kernel_name, &launch_xxh3},
    NamedKernel{ondemand::gather_kernel_name, &launch_rows<move_rows<false>>},
    NamedKernel{ondemand::scatter_kernel_name, &launch_rows<move_rows<true>>},
    NamedKernel{ondemand::flush_kernel_name, &launch_rows<flush_lines>},
    NamedKernel{ondemand::prefetch_kernel_name, &launch_rows<ask_for_rows>},
    NamedKernel{ondemand::zero_copy_kernel_name, &launch_rows<read_past>},
};

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
  const auto* const found = std::ranges::find(kernels, std::string_view(name), &NamedKernel::name);
  if (found == kernels.end()) {
    return CUDA_ERROR_NOT_FOUND;
  }
  *function = reinterpret_cast<CUfunction>(const_cast<NamedKernel*>(found));
  return CUDA_SUCCESS;
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
  const auto* const found = std::ranges::find_if(kernels, [function](const NamedKernel& each) {
    return reinterpret_cast<CUfunction>(const_cast<NamedKernel*>(&each)) == function;
  });
  if (found == kernels.end() || grid_y * grid_z * group_y * group_z != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return found->kernel({grid_x, group_x}, stream, arguments[0]);
}

#pragma GCC visibility pop
}  // extern "C"
