// A build without CUDA: there is no GPU, so no memory is one's.
#include "lud_kernel.hpp"

#include <stdexcept>

bool lud_is_gpu_memory(const void* /*address*/) {
  return false;
}

int lud_gpu_count() {
  return 0;
}

void lud_prepare_gpu(int /*gpu*/) {
  throw std::runtime_error("lud: built without CUDA");
}

void lud_on_gpu(float* /*matrix*/, std::size_t /*n*/) {
  throw std::runtime_error("lud: built without CUDA");
}

LudBaselineTimes lud_baseline_on_gpu(float* /*host_matrix*/, std::size_t /*n*/, int /*gpu*/) {
  throw std::runtime_error("lud: built without CUDA");
}
