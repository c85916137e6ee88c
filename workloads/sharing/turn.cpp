// schedGPUInit, preCudaMalloc and postCudaFree where the library has them; else --share is refused.
#include "workloads/sharing/turn.hpp"

#include "workloads/sharing/device.hpp"

#include <stdexcept>

#if __has_include(<hippogriff/schedgpu.h>)
#include <hippogriff/schedgpu.h>
#define HIPPO_HAS_SCHEDGPU 1
#else
#define HIPPO_HAS_SCHEDGPU 0
#endif

namespace {

constexpr int cuda_not_ready = 600;  // cudaErrorNotReady

#if HIPPO_HAS_SCHEDGPU
constexpr bool has_schedgpu = true;
constexpr int wait_for_it = 1;

int initialise(int timeout_seconds, int priority) {
  return schedGPUInit(timeout_seconds, priority);
}

int take_memory(int* number, std::size_t size_bytes) {
  return preCudaMalloc(number, size_bytes, wait_for_it, nullptr, 0);
}

int give_memory(int number, std::size_t size_bytes) {
  return postCudaFree(number, size_bytes);
}
#else
constexpr bool has_schedgpu = false;

int initialise(int /*timeout_seconds*/, int /*priority*/) {
  return 0;
}

int take_memory(int* /*number*/, std::size_t /*size_bytes*/) {
  return 0;
}

int give_memory(int /*number*/, std::size_t /*size_bytes*/) {
  return 0;
}
#endif

void check(int status, const char* call) {
  if (status == 0) {
    return;
  }
  const std::string message = std::string(call) + ": CUDA status " + std::to_string(status);
  if (status == cuda_not_ready) {
    throw NoDeviceMemory(message + ", there was no memory in time");
  }
  throw std::runtime_error(message);
}

}  // namespace

Turn::Turn(const Options& options)
    : share_(options.share()), device_(resolve_device(options.device())) {
  if (!share_) {
    return;
  }
  if (!has_schedgpu) {
    throw std::invalid_argument("--share: this build has no <hippogriff/schedgpu.h>");
  }
  if (device_ == "host" && gpu_count() > 0) {
    throw std::invalid_argument("--share: schedGPU's calls are for the GPUs where there are any");
  }
  if (!options.device().empty()) {
    number_ = device_ == "host" ? 0 : std::stoi(device_.substr(5));
  }
  check(initialise(static_cast<int>(options.number("timeout")),
                   static_cast<int>(options.number("priority"))),
        "schedGPUInit");
}

Turn::~Turn() {
  if (share_ && held_bytes_ > 0) {
    static_cast<void>(give_memory(number_, held_bytes_));
  }
}

void Turn::take(std::size_t size_bytes) {
  if (!share_) {
    return;
  }
  check(take_memory(&number_, size_bytes), "preCudaMalloc");
  held_bytes_ += size_bytes;
  if (device_ != "host") {
    device_ = "cuda:" + std::to_string(number_);
  }
}

void Turn::give(std::size_t size_bytes) {
  if (!share_) {
    return;
  }
  held_bytes_ -= size_bytes;
  check(give_memory(number_, size_bytes), "postCudaFree");
}
