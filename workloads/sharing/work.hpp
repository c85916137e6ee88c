// Work for a device: a struct whose operator() does one item, on a GPU's thread or on the CPU.
#pragma once

#include "workloads/sharing/device.hpp"

#include <cstddef>
#include <stdexcept>

#ifdef __CUDACC__
#define HIPPO_HOST_DEVICE __host__ __device__
#else
#define HIPPO_HOST_DEVICE
#endif

// All items on the current GPU, one a thread, and waits. A program's .cu instantiates it for its
// Work (launch.cuh has the body). Throws std::runtime_error with CUDA's words.
template <typename Work>
void on_gpu(const Work& work, std::size_t count);

#if !HIPPOGRIFF_HAS_CUDA
template <typename Work>
void on_gpu(const Work& /*work*/, std::size_t /*count*/) {
  throw std::runtime_error("built without CUDA");
}
#endif

// All items on the device whose memory the work points into. Device host uses the calling thread
// alone: a program is one core's work, as many of them run side by side.
template <typename Work>
void run_work(const Device& device, const Work& work, std::size_t count) {
  if (device.is_gpu()) {
    on_gpu(work, count);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    work(i);
  }
}
