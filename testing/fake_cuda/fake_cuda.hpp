// A stand-in for libcuda.so.1: the driver functions hippogriff loads, in host memory, with a thread
// per stream. Tests load it through HIPPOGRIFF_CUDA_DRIVER and steer it through FakeCuda.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <optional>

// What the library exports beside the driver's functions. Thread-safe.
extern "C" {
using fake_cuda_reset_function = void();
using fake_cuda_fail_function = void(const char* function, int nth, int result);
using fake_cuda_count_function = int(const char* what);
using fake_cuda_set_function = void(const char* what, int value);
using fake_cuda_stream_function = void(void* stream, int capturing);
using fake_cuda_managed_function = void*(std::size_t size_bytes, int device);
}

namespace hippogriff::testing {

// The fake behind this process's CUDA driver. Copies share it.
class FakeCuda {
 public:
  // Nothing when HIPPOGRIFF_CUDA_DRIVER does not name the fake.
  static std::optional<FakeCuda> of_this_process() {
    const char* file = std::getenv("HIPPOGRIFF_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
    void* library = file == nullptr ? nullptr : ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr || ::dlsym(library, "fake_cuda_reset") == nullptr) {
      return std::nullopt;
    }
    return FakeCuda(library);
  }

  // Forgets injected failures, settings, captures and foreign memory; joins destroyed streams.
  void reset() const { exported<fake_cuda_reset_function>("fake_cuda_reset")(); }

  // The nth call from now (1: the next) of a driver function, named without version, returns
  // `result` and does nothing. nth 0: every call from now on.
  void fail(const char* function, int nth, int result) const {
    exported<fake_cuda_fail_function>("fake_cuda_fail")(function, nth, result);
  }

  // How many there are now: "streams" (without the default ones), "events", "allocations" (mapped
  // ones too), "reservations" of addresses, "physical" (what cuMemCreate made), "registrations",
  // "contexts", of those "own_contexts", "modules"; and since reset "spoiled_captures".
  [[nodiscard]] int count(const char* what) const {
    return exported<fake_cuda_count_function>("fake_cuda_count")(what);
  }

  // "driver_version"; "context_ms": how long making a context takes; "attribute <number>": a device
  // attribute's value.
  void set(const char* what, int value) const {
    exported<fake_cuda_set_function>("fake_cuda_set")(what, value);
  }

  void set_capturing(void* stream, bool capturing) const {
    exported<fake_cuda_stream_function>("fake_cuda_set_capturing")(stream, capturing ? 1 : 0);
  }

  // Memory that cuMemAllocManaged would give; reset() frees it.
  [[nodiscard]] void* managed(std::size_t size_bytes, int device) const {
    return exported<fake_cuda_managed_function>("fake_cuda_managed")(size_bytes, device);
  }

  // An exported function: of the driver, or of the fake's own.
  template <typename Function>
  [[nodiscard]] Function* exported(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(library_, name));
  }

 private:
  explicit FakeCuda(void* library) : library_(library) {}

  void* library_;
};

}  // namespace hippogriff::testing
