// The CUDA driver's functions, found in libcuda.so.1 at run time.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_device.hpp"

#include <cuda.h>

#include <sys/types.h>

#include <memory>
#include <string>

// Newer headers only declare the form that drivers before 12.5 do not have.
// NOLINTNEXTLINE(readability-identifier-naming): theirs
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);

namespace hippogriff {

// Ours, and the driver's symbol: the version behind the name is part of the binary interface.
#define HIPPO_CUDA_FUNCTIONS(X)                                \
  X(init, cuInit)                                              \
  X(driver_get_version, cuDriverGetVersion)                    \
  X(get_error_name, cuGetErrorName)                            \
  X(get_error_string, cuGetErrorString)                        \
  X(device_get_count, cuDeviceGetCount)                        \
  X(device_get, cuDeviceGet)                                   \
  X(device_get_name, cuDeviceGetName)                          \
  X(device_get_uuid, cuDeviceGetUuid_v2)                       \
  X(device_total_mem, cuDeviceTotalMem_v2)                     \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId)                \
  X(device_get_attribute, cuDeviceGetAttribute)                \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain)              \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2)         \
  X(ctx_set_current, cuCtxSetCurrent)                          \
  X(ctx_get_current, cuCtxGetCurrent)                          \
  X(ctx_push_current, cuCtxPushCurrent_v2)                     \
  X(ctx_pop_current, cuCtxPopCurrent_v2)                       \
  X(ctx_get_device, cuCtxGetDevice)                            \
  X(mem_get_info, cuMemGetInfo_v2)                             \
  X(mem_alloc, cuMemAlloc_v2)                                  \
  X(mem_free, cuMemFree_v2)                                    \
  X(mem_granularity, cuMemGetAllocationGranularity)            \
  X(mem_address_reserve, cuMemAddressReserve)                  \
  X(mem_address_free, cuMemAddressFree)                        \
  X(mem_create, cuMemCreate)                                   \
  X(mem_release, cuMemRelease)                                 \
  X(mem_map, cuMemMap)                                         \
  X(mem_unmap, cuMemUnmap)                                     \
  X(mem_set_access, cuMemSetAccess)                            \
  X(mem_host_register, cuMemHostRegister_v2)                   \
  X(mem_host_unregister, cuMemHostUnregister)                  \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2) \
  X(pointer_get_attributes, cuPointerGetAttributes)            \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2)                   \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2)                   \
  X(stream_create, cuStreamCreate)                             \
  X(stream_destroy, cuStreamDestroy_v2)                        \
  X(stream_query, cuStreamQuery)                               \
  X(stream_wait_event, cuStreamWaitEvent)                      \
  X(stream_is_capturing, cuStreamIsCapturing)                  \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode)  \
  X(stream_wait_value32, cuStreamWaitValue32_v2)               \
  X(ctx_create, cuCtxCreate_v2)                                \
  X(ctx_destroy, cuCtxDestroy_v2)                              \
  X(ctx_set_limit, cuCtxSetLimit)                              \
  X(launch_host_func, cuLaunchHostFunc)                        \
  X(event_create, cuEventCreate)                               \
  X(event_destroy, cuEventDestroy_v2)                          \
  X(event_record, cuEventRecord)                               \
  X(event_query, cuEventQuery)                                 \
  X(module_load_data, cuModuleLoadData)                        \
  X(module_unload, cuModuleUnload)                             \
  X(module_get_function, cuModuleGetFunction)                  \
  X(launch_kernel, cuLaunchKernel)

// The oldest driver we run on: 12.0, the first whose stream memory operations need no switch.
inline constexpr int cuda_driver_version_min = 12000;

// The functions, non-null where not said otherwise, of an initialized driver. Immutable once
// loaded, never unloaded.
struct CudaDriver {
#define HIPPO_DECLARE(name, symbol) decltype(&::symbol) name = nullptr;
  HIPPO_CUDA_FUNCTIONS(HIPPO_DECLARE)
#undef HIPPO_DECLARE
  // Of CUDA 12.5 and later; else null.
  decltype(&::cuCtxRecordEvent) ctx_record_event = nullptr;
  // Of CUDA 13.0 and later; else null.
  decltype(&::cuMemcpyBatchAsync_v2) memcpy_batch_async = nullptr;
  void* handle = nullptr;  // dlopen's handle
  pid_t process = 0;       // that initialized it

  // False in a child forked after initialization, where every CUDA call fails.
  [[nodiscard]] bool usable() const noexcept;
  // "CUDA_ERROR_OUT_OF_MEMORY: out of memory"
  [[nodiscard]] std::string describe(CUresult result) const;
};

struct CudaDriverLoad {
  std::unique_ptr<CudaDriver> driver;  // null when presence.why_not says why
  CudaPresence presence;
};

// Opens a driver library and initializes it. Throws only std::bad_alloc.
CudaDriverLoad load_cuda_driver(const std::string& library_file);

// This process's driver ($HIPPOGRIFF_CUDA_DRIVER, else libcuda.so.1), loaded at the first call;
// null when cuda_presence().why_not says why. Thread-safe.
const CudaDriver* cuda_driver() noexcept;

// Whether the program or we have it; it is not loaded for that.
bool cuda_driver_is_loaded() noexcept;

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
