// A CUDA GPU as the programs use it: blocking calls of the runtime on the default stream.
#include "workloads/sharing/device.hpp"

#include <string>

namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) {
    return;
  }
  const std::string message = std::string(what) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation) {
    throw NoDeviceMemory(message);
  }
  throw std::runtime_error(message);
}

class Gpu final : public Device {
 public:
  explicit Gpu(int number) {
    check(cudaSetDevice(number), "choosing the GPU");
    check(cudaFree(nullptr), "making the GPU's context");
  }

  [[nodiscard]] bool is_gpu() const override { return true; }

  void* allocate(std::size_t size_bytes) override {
    void* memory = nullptr;
    check(cudaMalloc(&memory, size_bytes), "cudaMalloc");
    return memory;
  }

  void free(void* memory) noexcept override { static_cast<void>(cudaFree(memory)); }

  void fill(void* memory, std::size_t size_bytes) override {
    check(cudaMemset(memory, 0xA5, size_bytes), "cudaMemset");
  }

  void copy_in(void* to, const void* from, std::size_t size_bytes) override {
    check(cudaMemcpy(to, from, size_bytes, cudaMemcpyHostToDevice), "copying to the GPU");
  }

  void copy_out(void* to, const void* from, std::size_t size_bytes) override {
    check(cudaMemcpy(to, from, size_bytes, cudaMemcpyDeviceToHost), "copying from the GPU");
  }
};

}  // namespace

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());  // clears it: having no GPU is an answer here
    return 0;
  }
  return count;
}

std::unique_ptr<Device> open_gpu(int number) {
  return std::make_unique<Gpu>(number);
}

void wait_for_gpu() {
  check(cudaDeviceSynchronize(), "waiting for the kernels");
}
