// How far kernels on the default stream are.
#pragma once

#include "workloads/sharing/device.hpp"

#include <memory>

// Functions throw std::runtime_error.
class KernelMark {
 public:
  KernelMark() = default;
  virtual ~KernelMark() = default;
  KernelMark(const KernelMark&) = delete;
  KernelMark& operator=(const KernelMark&) = delete;

  // Behind all kernels that are on the stream now.
  virtual void set() = 0;
  // Whether those before the mark are through; also where it was never set.
  virtual bool passed() = 0;
  virtual void wait() = 0;
};

// On device host kernels are through when they return.
std::unique_ptr<KernelMark> open_mark(const Device& device);
std::unique_ptr<KernelMark> open_gpu_mark();  // of the current GPU
