// Streams and events: one driver call each, and its result checked.
#include "device/cuda_stream.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include <algorithm>
#include <array>
#include <utility>

namespace hippogriff {
namespace {

constexpr std::size_t batch_parts_max = 256;

// Asks a query whose answers are "yes", "not yet" and "the work failed".
bool finished(const CudaContext& context, CUresult result, const char* operation) {
  if (result == CUDA_ERROR_NOT_READY) {
    return false;
  }
  context.check(result, operation);
  return true;
}

void CUDA_CB run_and_delete(void* argument) noexcept {
  const std::unique_ptr<std::function<void()>> function(
      static_cast<std::function<void()>*>(argument));
  (*function)();
}

}  // namespace

CudaEvent::CudaEvent(const CudaContext& context) : context_(context) {
  const CudaScope scope(context_);
  context_.check(context_.driver().event_create(&event_, CU_EVENT_DISABLE_TIMING), "create event");
}

CudaEvent::~CudaEvent() {
  // The driver keeps what a recorded event still needs; a failure means that the context is gone.
  if (context_.driver().usable()) {
    static_cast<void>(context_.driver().event_destroy(event_));
  }
}

bool CudaEvent::completed() {
  return finished(context_, context_.driver().event_query(event_), "work before an event");
}

CudaStream::CudaStream(const CudaContext& context) : context_(context) {
  const CudaScope scope(context_);
  context_.check(context_.driver().stream_create(&stream_, CU_STREAM_NON_BLOCKING),
                 "create stream");
}

CudaStream::CudaStream(const CudaContext& context, CUstream borrowed)
    : context_(context),
      stream_(borrowed == nullptr ? CU_STREAM_LEGACY : borrowed),
      owned_(false) {}

CudaStream::~CudaStream() {
  // The driver lets queued work finish first and does not wait for it here.
  if (owned_ && context_.driver().usable()) {
    static_cast<void>(context_.driver().stream_destroy(stream_));
  }
}

void CudaStream::refuse_capture_of_borrowed(const char* operation) const {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = context_.driver().stream_is_capturing(stream_, &status);
  const bool capturing = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ||
                         (result == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE);
  if (capturing) {
    throw_unsupported(operation,
                      "a stream of " + context_.name() +
                          " that captures a CUDA graph cannot carry a transfer: submit "
                          "it outside the capture");
  }
  context_.check(result, "ask whether the stream captures a graph");
}

void CudaStream::copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) {
  refuse_capture("copy to device");
  context_.check(context_.driver().memcpy_htod_async(to.value, from, size_bytes, stream_),
                 "copy to device");
}

void CudaStream::copy_all_to_device(std::span<const CopyPart> parts) {
  auto* const copy_batch = context_.driver().memcpy_batch_async;
  if (parts.size() < 2 || copy_batch == nullptr || stream_ == CU_STREAM_LEGACY) {
    Stream::copy_all_to_device(parts);
    return;
  }
  refuse_capture("copy to device");
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t first_of_attributes = 0;
  std::array<CUdeviceptr, batch_parts_max> to{};
  std::array<CUdeviceptr, batch_parts_max> from{};
  std::array<std::size_t, batch_parts_max> sizes_bytes{};
  while (!parts.empty()) {
    std::size_t count = 0;
    for (const CopyPart& part : parts.first(std::min(parts.size(), batch_parts_max))) {
      if (part.size_bytes != 0) {  // the driver takes no empty ones
        to[count] = part.to.value;
        from[count] = reinterpret_cast<CUdeviceptr>(part.from);
        sizes_bytes[count++] = part.size_bytes;
      }
    }
    parts = parts.subspan(std::min(parts.size(), batch_parts_max));
    if (count != 0) {
      const CUresult result = copy_batch(to.data(),
                                         from.data(),
                                         sizes_bytes.data(),
                                         count,
                                         &attributes,
                                         &first_of_attributes,
                                         1,
                                         stream_);
      context_.check(result, "copy to device");
    }
  }
}

void CudaStream::copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) {
  refuse_capture("copy to host");
  context_.check(context_.driver().memcpy_dtoh_async(to, from.value, size_bytes, stream_),
                 "copy to host");
}

void CudaStream::record(Event& event) {
  refuse_capture("record event");
  context_.check(context_.driver().event_record(static_cast<CudaEvent&>(event).handle(), stream_),
                 "record event");
}

void CudaStream::wait(Event& event) {
  refuse_capture("wait for event");
  context_.check(
      context_.driver().stream_wait_event(stream_, static_cast<CudaEvent&>(event).handle(), 0),
      "wait for event");
}

void CudaStream::launch(std::function<void()> function) {
  refuse_capture("launch host function");
  auto held = std::make_unique<std::function<void()>>(std::move(function));
  context_.check(context_.driver().launch_host_func(stream_, &run_and_delete, held.get()),
                 "launch host function");
  // run_and_delete owns it now.
  static_cast<void>(held.release());  // NOLINT(bugprone-unused-return-value)
}

CUdeviceptr CudaStream::device_word(HostFlag flag) const {
  CUdeviceptr word = 0;
  context_.check(context_.driver().mem_host_get_device_pointer(&word, flag.word, 0),
                 "find the device address of a host flag");
  return word;
}

void CudaStream::wait_flag(HostFlag flag) {
  refuse_capture("wait for host flag");
  context_.check(context_.driver().stream_wait_value32(
                     stream_, device_word(flag), flag.value, CU_STREAM_WAIT_VALUE_GEQ),
                 "wait for host flag");
}

bool CudaStream::idle() {
  if (stream_ != CU_STREAM_LEGACY) {  // asked in a loop behind a copy, which has looked already
    refuse_capture("query stream");
  }
  return finished(context_, context_.driver().stream_query(stream_), "work of a stream");
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
