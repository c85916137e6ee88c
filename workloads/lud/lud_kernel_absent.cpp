// A build without CUDA: there is no GPU.
#include "lud_kernel.hpp"

#include <stdexcept>

int lud_gpu_count() {
  return 0;
}

void lud_on_gpu(float* /*matrix*/, std::size_t /*n*/) {
  throw std::runtime_error("lud: built without CUDA");
}

void lud_through_gpu(float* /*host_matrix*/, std::size_t /*n*/, int /*gpu*/) {
  throw std::runtime_error("lud: built without CUDA");
}
