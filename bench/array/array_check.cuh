// What the array programs share: bounded waits for kernels, failures of CUDA, JSON lines.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

inline void check_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
  }
}

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Waits for what was recorded, at most `limit` seconds: a kernel that hangs cannot be ended, so
// then the process does.
inline void wait_for(cudaEvent_t event, const char* what, double limit) {
  const double begin = seconds_now();
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) {
      return;
    }
    if (state != cudaErrorNotReady) {
      check_cuda(state, what);
    }
    if (seconds_now() - begin > limit) {
      std::printf("{\"case\": \"%s\", \"error\": \"did not end in %.0f s\"}\n", what, limit);
      std::fflush(stdout);
      std::_Exit(3);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

// Runs `launch` and waits for it, at most `limit` seconds. Returns the seconds it took.
template <typename Launch>
double timed(const char* what, double limit, Launch launch) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), what);
  const double begin = seconds_now();
  launch();
  check_cuda(cudaGetLastError(), what);
  check_cuda(cudaEventRecord(event, nullptr), what);
  wait_for(event, what, limit);
  const double seconds = seconds_now() - begin;
  check_cuda(cudaEventDestroy(event), what);
  return seconds;
}

// A number that kernels write and the host reads.
class DeviceNumber {
 public:
  DeviceNumber() {
    check_cuda(cudaMalloc(&number_, sizeof(unsigned long long)), "allocate a counter");
    reset();
  }

  ~DeviceNumber() { static_cast<void>(cudaFree(number_)); }

  DeviceNumber(const DeviceNumber&) = delete;
  DeviceNumber& operator=(const DeviceNumber&) = delete;

  void reset() {
    check_cuda(cudaMemset(number_, 0, sizeof(unsigned long long)), "reset a counter");
  }

  [[nodiscard]] unsigned long long* get() const { return number_; }

  [[nodiscard]] unsigned long long read() const {
    unsigned long long value = 0;
    check_cuda(cudaMemcpy(&value, number_, sizeof value, cudaMemcpyDeviceToHost), "read a counter");
    return value;
  }

 private:
  unsigned long long* number_ = nullptr;
};

__host__ __device__ inline std::uint64_t mixed(std::uint64_t number) {
  number ^= number >> 30U;
  number *= 0xBF58476D1CE4E5B9U;
  number ^= number >> 27U;
  number *= 0x94D049BB133111EBU;
  return number ^ (number >> 31U);
}
