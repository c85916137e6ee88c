// Streams and events of a CUDA device.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_context.hpp"

namespace hippogriff {

class CudaEvent final : public Event {
 public:
  explicit CudaEvent(const CudaContext& context);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  [[nodiscard]] bool completed() override;

  [[nodiscard]] CUevent handle() const { return event_; }

 private:
  const CudaContext& context_;
  CUevent event_ = nullptr;
};

// The context must be current on the thread that queues work.
class CudaStream final : public Stream {
 public:
  // A stream of our own, which the legacy default stream does not wait for.
  explicit CudaStream(const CudaContext& context);
  // The caller's stream. It may be capturing a graph, which every call here refuses as unsupported:
  // a transfer must happen once and now, not when a graph is launched.
  CudaStream(const CudaContext& context, CUstream borrowed);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) override;
  void copy_all_to_device(std::span<const CopyPart> parts) override;
  void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) override;
  // The event must be a CudaEvent of the same device.
  void record(Event& event) override;
  void wait(Event& event) override;
  void launch(std::function<void()> function) override;
  void wait_flag(HostFlag flag) override;
  [[nodiscard]] bool idle() override;

  [[nodiscard]] void* native_handle() const override { return stream_; }

 private:
  void refuse_capture(const char* operation) const {
    if (!owned_) {
      refuse_capture_of_borrowed(operation);
    }
  }

  void refuse_capture_of_borrowed(const char* operation) const;
  [[nodiscard]] CUdeviceptr device_word(HostFlag flag) const;

  const CudaContext& context_;
  CUstream stream_ = nullptr;
  bool owned_ = true;
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
