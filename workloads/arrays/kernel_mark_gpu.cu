// Marks of a GPU: events on the default stream.
#include "workloads/arrays/kernel_mark.hpp"

#include <stdexcept>
#include <string>

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

class GpuMark final : public KernelMark {
 public:
  GpuMark() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }

  ~GpuMark() override { static_cast<void>(cudaEventDestroy(event_)); }

  void set() override { check(cudaEventRecord(event_), "recording an event"); }

  bool passed() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // it is an answer, not an error
      return false;
    }
    check(status, "asking for an event");
    return true;
  }

  void wait() override { check(cudaEventSynchronize(event_), "waiting for the kernels"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<KernelMark> open_gpu_mark() {
  return std::make_unique<GpuMark>();
}
