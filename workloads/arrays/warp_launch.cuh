// The GPU's side of warp.hpp: as many warps as fit go through the items.
#pragma once

#include "workloads/arrays/warp.hpp"

#include <hippogriff/array.cuh>

#include <algorithm>
#include <stdexcept>
#include <string>

struct GpuWarp {
  static constexpr unsigned lanes = 32;
  static constexpr unsigned all = ~0U;

  [[nodiscard]] __device__ unsigned rank() const { return threadIdx.x % lanes; }

  [[nodiscard]] __device__ hippogriff::ondemand::Lanes group() const {
    return hippogriff::ondemand::Lanes::warp();
  }

  __device__ void meet() const { __syncwarp(); }

  template <typename T>
  [[nodiscard]] __device__ T sum(T value) const {
    for (unsigned apart = lanes / 2; apart > 0; apart /= 2) {
      value += __shfl_xor_sync(all, value, static_cast<int>(apart));
    }
    return value;
  }

  [[nodiscard]] __device__ bool any(bool mine) const { return __any_sync(all, mine) != 0; }

  [[nodiscard]] __device__ unsigned vote(bool mine) const { return __ballot_sync(all, mine); }

  template <typename T>
  [[nodiscard]] __device__ T from(unsigned lane, T value) const {
    return __shfl_sync(all, value, static_cast<int>(lane));
  }

  template <typename Counter>
  [[nodiscard]] __device__ Counter reserve(Counter& counter, unsigned count) const {
    if (__ballot_sync(all, count != 0) == 0) {
      return 0;
    }
    unsigned up_to = count;
    for (unsigned apart = 1; apart < lanes; apart *= 2) {
      const unsigned before = __shfl_up_sync(all, up_to, apart);
      up_to += rank() >= apart ? before : 0;
    }
    Counter begin = 0;
    if (rank() == lanes - 1) {
      begin = atomicAdd(&counter, static_cast<Counter>(up_to));
    }
    begin = __shfl_sync(all, begin, static_cast<int>(lanes) - 1);
    return begin + up_to - count;
  }
};

// Of shared memory, for each warp.
template <typename Work>
using GpuBuffer = typename Work::template Buffer<1024>;

// A block may have 48 KiB of it.
template <typename Work>
inline constexpr unsigned warps_a_block = sizeof(GpuBuffer<Work>) > 8192   ? 2
                                          : sizeof(GpuBuffer<Work>) > 4096 ? 4
                                                                           : 8;

// Registers for so many warps a multiprocessor. With 16 kernels spill little or nothing, and are
// quicker than with 32, of which each spills a kilobyte; but where each warp waits for a line of
// its own most of the time more of them are quicker: such work has `warps_at_once`.
template <typename Work>
constexpr unsigned blocks_at_once() {
  if constexpr (requires { Work::warps_at_once; }) {
    return Work::warps_at_once / warps_a_block<Work>;
  } else {
    return 16 / warps_a_block<Work>;
  }
}

// The work stays where parameters are; a copy would be a thread's.
template <typename Work>
__global__ void __launch_bounds__(warps_a_block<Work> * 32, blocks_at_once<Work>())
    warp_kernel(const __grid_constant__ Work work, std::uint64_t items) {
  __shared__ GpuBuffer<Work> buffers[warps_a_block<Work>];
  const std::uint64_t warps = std::uint64_t{gridDim.x} * warps_a_block<Work>;
  const unsigned mine = threadIdx.x / 32;
  for (std::uint64_t item = std::uint64_t{blockIdx.x} * warps_a_block<Work> + mine; item < items;
       item += warps) {
    work(GpuWarp{}, buffers[mine], item);
  }
}

// The same for items that are taken in order: by strides, warps that wait longer fall behind.
template <typename Work>
__global__ void __launch_bounds__(warps_a_block<Work> * 32, blocks_at_once<Work>())
    ordered_warp_kernel(const __grid_constant__ Work work,
                        std::uint64_t items,
                        unsigned long long* next) {
  __shared__ GpuBuffer<Work> buffers[warps_a_block<Work>];
  for (;;) {
    unsigned long long item = threadIdx.x % 32 == 0 ? atomicAdd(next, 1ULL) : 0;
    item = __shfl_sync(GpuWarp::all, item, 0);
    if (item >= items) {
      return;
    }
    work(GpuWarp{}, buffers[threadIdx.x / 32], item);
  }
}

// Of the kernel that runs: on the default stream one does at a time.
static __device__ unsigned long long next_item;

template <typename Work>
cudaError_t launch_in_order(const Work& work, std::uint64_t items, unsigned blocks) {
  void* next = nullptr;
  cudaError_t status = cudaGetSymbolAddress(&next, next_item);
  if (status == cudaSuccess) {
    status = cudaMemsetAsync(next, 0, sizeof next_item);
  }
  if (status == cudaSuccess) {
    ordered_warp_kernel<Work>
        <<<blocks, warps_a_block<Work> * 32>>>(work, items, static_cast<unsigned long long*>(next));
    status = cudaGetLastError();
  }
  return status;
}

template <typename Work>
void on_gpu_warps(const Work& work, std::uint64_t items) {
  constexpr unsigned warps = warps_a_block<Work>;
  int device = 0;
  int processors = 0;
  int blocks = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) {
    status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (status == cudaSuccess) {
    status = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &blocks, warp_kernel<Work>, static_cast<int>(warps * 32), 0);
  }
  if (status == cudaSuccess) {
    const std::uint64_t most = static_cast<std::uint64_t>(processors) * std::max(blocks, 1);
    const std::uint64_t wanted = (items + warps - 1) / warps;
    const auto count = static_cast<unsigned>(std::min(most, wanted));
    if constexpr (requires { work.in_order_by(); }) {
      const std::uint64_t enough = std::max<std::uint64_t>(work.in_order_by() / warps, 1);
      status = launch_in_order(
          work, items, static_cast<unsigned>(std::min<std::uint64_t>(count, enough)));
    } else {
      warp_kernel<Work><<<count, warps * 32>>>(work, items);
      status = cudaGetLastError();
    }
  }
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("launching a kernel: ") + cudaGetErrorString(status));
  }
}
