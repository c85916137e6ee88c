// One GPU, and a context on it: what every CUDA call of a device needs beside its arguments.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_driver.hpp"
#include "device/device.hpp"

#include <string>

namespace hippogriff {

// A GPU as the driver tells of it without a context. Immutable, so thread-safe.
class CudaGpu {
 public:
  // Throws Error(device_error) when the driver has no such GPU.
  CudaGpu(const CudaDriver& driver, int index);

  [[nodiscard]] const CudaDriver& driver() const { return driver_; }

  [[nodiscard]] CUdevice device() const { return device_; }

  [[nodiscard]] const std::string& name() const { return name_; }

  // A device attribute; 0 when this driver does not know it.
  [[nodiscard]] int attribute(CUdevice_attribute attribute) const;

  void check(CUresult result, const char* operation) const {
    if (result != CUDA_SUCCESS) [[unlikely]] {
      fail(result, operation);
    }
  }

  // Throws Error(device_error) with the operation, this device, the CUresult and its text.
  [[noreturn]] void fail(CUresult result, const char* operation) const;

 private:
  const CudaDriver& driver_;
  std::string name_;
  CUdevice device_ = 0;
};

enum class ContextKind : std::uint8_t {
  primary,  // the CUDA runtime's, torch's and CuPy's in this process
  own,      // one more beside it
};

// Retains the primary context, or holds one of its own, for its lifetime. Immutable, so
// thread-safe.
class CudaContext : public CudaGpu {
 public:
  // Throws Error(device_error) when the GPU cannot be used.
  CudaContext(const CudaDriver& driver, int index, ContextKind kind = ContextKind::primary);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] CUcontext handle() const { return context_; }

 private:
  CUcontext context_ = nullptr;
  ContextKind kind_;
};

// How calls of this thread bear with other threads' captures of graphs; returns what it was.
CUstreamCaptureMode exchange_capture_mode(const CudaDriver& driver,
                                          CUstreamCaptureMode mode) noexcept;

// Makes a context current on this thread, and its calls harmless to graphs that others capture: in
// CUDA's usual mode asking for an event ends the captures of all threads, and fails.
[[nodiscard]] DeviceEntry enter_context(const CudaContext& context);
void leave_context(const CudaContext& context, DeviceEntry entry) noexcept;

// The same for a scope.
class CudaScope {
 public:
  explicit CudaScope(const CudaContext& context);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaContext& context_;
  const DeviceEntry entry_;
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
