// A build without CUDA: there is no GPU.
#include "workloads/sharing/device.hpp"

int gpu_count() {
  return 0;
}

std::unique_ptr<Device> open_gpu(int /*number*/) {
  throw std::runtime_error("built without CUDA");
}

void wait_for_gpu() {
  throw std::runtime_error("built without CUDA");
}
