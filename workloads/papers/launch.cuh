// The GPU's side of block.hpp: a block is a block, its memory is shared memory.
#pragma once

#include "workloads/papers/block.hpp"

#include <limits>
#include <stdexcept>
#include <string>

template <unsigned Threads>
class GpuBlock {
 public:
  template <typename T>
  class PerThread {
   public:
    __device__ T& operator[](unsigned /*thread*/) { return value_; }

   private:
    T value_;
  };

  [[nodiscard]] __device__ std::size_t index() const { return blockIdx.x; }

  template <typename Do>
  __device__ void each(const Do& act) const {
    act(threadIdx.x);
    __syncthreads();
  }

  template <typename T>
  __device__ T read(const T& shared) const {
    const T value = shared;
    __syncthreads();
    return value;
  }
};

// How many blocks a multiprocessor must have room for: what a kernel's `resident` says.
template <typename Work>
constexpr unsigned resident_blocks() {
  if constexpr (requires { Work::resident; }) {
    return Work::resident;
  }
  return 1;
}

template <typename Work>
__global__ void __launch_bounds__(Work::threads, resident_blocks<Work>()) block_kernel(Work work) {
  __shared__ typename Work::Shared shared;
  work(GpuBlock<Work::threads>(), shared);
}

template <typename Work>
void on_gpu_blocks(const Work& work, std::size_t blocks) {
  if (blocks > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
    throw std::runtime_error("more blocks than a GPU's grid may have: " + std::to_string(blocks));
  }
  block_kernel<<<static_cast<unsigned>(blocks), Work::threads>>>(work);
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string("launching a kernel: ") + cudaGetErrorString(status));
  }
}
