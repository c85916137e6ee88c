// Copies by a GPU's copy engine: a stream for each thread, an event for each slot.
#include "workloads/papers/copies.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

class GpuQueue final : public CopyQueue {
 public:
  GpuQueue(int number, unsigned slots) : events_(slots, nullptr) {
    check(cudaSetDevice(number), "choosing the GPU");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    for (cudaEvent_t& event : events_) {
      check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    }
  }

  ~GpuQueue() override {
    drain();
    for (const cudaEvent_t event : events_) {
      static_cast<void>(cudaEventDestroy(event));
    }
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  void copy_in(void* to, const void* from, std::size_t size_bytes, unsigned slot) override {
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, stream_),
          "copying to the GPU");
    check(cudaEventRecord(events_.at(slot), stream_), "recording an event");
  }

  void copy_out(void* to, const void* from, std::size_t size_bytes, unsigned slot) override {
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, stream_),
          "copying from the GPU");
    check(cudaEventRecord(events_.at(slot), stream_), "recording an event");
  }

  void wait(unsigned slot) override {
    check(cudaEventSynchronize(events_.at(slot)), "waiting for a copy");
  }

  void drain() noexcept override { static_cast<void>(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
};

}  // namespace

int current_gpu() {
  int number = 0;
  check(cudaGetDevice(&number), "asking for the GPU");
  return number;
}

std::unique_ptr<CopyQueue> open_gpu_queue(int number, unsigned slots) {
  return std::make_unique<GpuQueue>(number, slots);
}

void pin_for_gpu(void* memory, std::size_t size_bytes) {
  check(cudaHostRegister(memory, size_bytes, cudaHostRegisterDefault), "cudaHostRegister");
}

void unpin_for_gpu(void* memory) noexcept {
  static_cast<void>(cudaHostUnregister(memory));
}
