// The body of on_gpu: one kernel for all kinds of work, in blocks of 128 threads.
#pragma once

#include "workloads/sharing/work.hpp"

#include <algorithm>
#include <string>

template <typename Work>
__global__ void work_kernel(Work work, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    work(i);
  }
}

// On the default stream; waits. The grid is as large as the items want, up to 2^20 blocks.
template <typename Work>
void on_gpu(const Work& work, std::size_t count) {
  constexpr unsigned block = 128;
  constexpr std::size_t grid_max = std::size_t{1} << 20U;
  if (count == 0) {
    return;
  }
  const unsigned grid = static_cast<unsigned>(std::min((count + block - 1) / block, grid_max));
  work_kernel<<<grid, block>>>(work, count);
  cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) {
    status = cudaDeviceSynchronize();
  }
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("running the kernel: ") + cudaGetErrorString(status));
  }
}
