// Retaining a primary context, and turning a CUresult into an Error.
#include "device/cuda_context.hpp"

#if HIPPOGRIFF_HAS_CUDA

namespace hippogriff {

CudaGpu::CudaGpu(const CudaDriver& driver, int index)
    : driver_(driver), name_("cuda:" + std::to_string(index)) {
  check(driver_.device_get(&device_, index), "find the device");
}

int CudaGpu::attribute(CUdevice_attribute attribute) const {
  int value = 0;
  return driver_.device_get_attribute(&value, attribute, device_) == CUDA_SUCCESS ? value : 0;
}

void CudaGpu::fail(CUresult result, const char* operation) const {
  Failure failure;
  failure.status = Status::device_error;
  failure.operation = operation;
  failure.object = name_;
  failure.device_status = static_cast<int>(result);
  failure.detail = driver_.describe(result);
  throw Error(std::move(failure));
}

CudaContext::CudaContext(const CudaDriver& driver, int index, ContextKind kind)
    : CudaGpu(driver, index), kind_(kind) {
  if (kind_ == ContextKind::primary) {
    check(driver.primary_ctx_retain(&context_, device()), "start the device");
    return;
  }
  check(driver.ctx_create(&context_, CU_CTX_SCHED_AUTO, device()), "make a context");
  CUcontext popped = nullptr;  // the driver made it current on this thread
  check(driver.ctx_pop_current(&popped), "make a context");
}

CudaContext::~CudaContext() {
  // A failure here means that the driver is gone already (process exit): nothing is left to
  // release.
  if (driver().usable()) {
    static_cast<void>(kind_ == ContextKind::primary ? driver().primary_ctx_release(device())
                                                    : driver().ctx_destroy(context_));
  }
}

CUstreamCaptureMode exchange_capture_mode(const CudaDriver& driver,
                                          CUstreamCaptureMode mode) noexcept {
  static_cast<void>(driver.exchange_capture_mode(&mode));
  return mode;
}

DeviceEntry enter_context(const CudaContext& context) {
  const CudaDriver& driver = context.driver();
  CUcontext current = nullptr;
  context.check(driver.ctx_get_current(&current), "find the current context");
  const bool pushed = current != context.handle();
  if (pushed) {
    context.check(driver.ctx_push_current(context.handle()), "make the device current");
  }
  return {pushed, exchange_capture_mode(driver, CU_STREAM_CAPTURE_MODE_RELAXED)};
}

void leave_context(const CudaContext& context, DeviceEntry entry) noexcept {
  const CudaDriver& driver = context.driver();
  static_cast<void>(
      exchange_capture_mode(driver, static_cast<CUstreamCaptureMode>(entry.capture_mode)));
  if (entry.pushed) {
    CUcontext popped = nullptr;
    static_cast<void>(driver.ctx_pop_current(&popped));
  }
}

CudaScope::CudaScope(const CudaContext& context)
    : context_(context), entry_(enter_context(context)) {}

CudaScope::~CudaScope() {
  leave_context(context_, entry_);
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
