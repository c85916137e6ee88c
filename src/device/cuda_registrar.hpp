// Registration of mappings beside everybody else's work on a GPU.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_context.hpp"
#include "device/device.hpp"

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace hippogriff {

// Registers through a context of its own as soon as there is one: cuMemHostRegister holds its
// context's lock for milliseconds, and cuMemHostUnregister waits until all kernels of its context
// have ended, so that in the primary context both would stop what others do there. Pages are
// registered for all contexts, and copied on any stream. Thread-safe.
class CudaRegistrar {
 public:
  // `index`: of the device in this process. `primary` must outlive this.
  CudaRegistrar(const CudaContext& primary, int index);
  ~CudaRegistrar();
  CudaRegistrar(const CudaRegistrar&) = delete;
  CudaRegistrar& operator=(const CudaRegistrar&) = delete;

  // True once the context is there. The first call has it made, on a thread of its own; where that
  // failed, a call some seconds later tries again.
  [[nodiscard]] bool aside(std::chrono::milliseconds patience);
  [[nodiscard]] bool aside_now();

  // Throws Error(out_of_host_memory, device_error, unsupported, invalid_argument).
  void register_host(std::byte* memory, std::size_t size_bytes, HostAccess access);
  void unregister_host(std::byte* memory) noexcept;

 private:
  void open() noexcept;

  const CudaContext& primary_;
  const int index_;
  const bool read_only_supported_;
  std::mutex mutex_;
  std::condition_variable opened_;
  std::thread opener_;
  bool opening_ = false;  // or opened, or not to be tried again before retry_at_
  bool open_ended_ = false;
  std::chrono::steady_clock::time_point retry_at_;
  std::unique_ptr<CudaContext> own_;
  std::map<std::byte*, const CudaContext*> registered_;  // and through which context
};

// Turns what cuMemHostRegister answered into an Error.
[[noreturn]] void fail_pinning(const CudaContext& context, CUresult result, std::size_t size_bytes);

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
