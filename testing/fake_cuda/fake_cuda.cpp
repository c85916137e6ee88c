// The driver functions themselves, as cuda.h declares them: devices, contexts and memory.
#include "testing/fake_cuda/fake_state.hpp"

#include <cuda.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

using fake_cuda::Allocation;
using fake_cuda::context_stack;
using fake_cuda::device_count;
using fake_cuda::State;
using fake_cuda::state;

namespace {

int current_device() {
  return fake_cuda::device_of(context_stack().back());
}

int default_attribute(CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      return 1;
    default:
      return 0;
  }
}

// Whether the pages can be read, and written unless read_only, without a signal.
bool can_pin(void* memory, std::size_t size_bytes, bool read_only) {
  constexpr int populate_read = 22;   // MADV_POPULATE_READ, Linux 5.14
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE
  if (::madvise(memory, size_bytes, read_only ? populate_read : populate_write) == 0) {
    return true;
  }
  std::vector<unsigned char> pages(size_bytes / 4096 + 1);
  return errno == EINVAL && ::mincore(memory, size_bytes, pages.data()) == 0;
}

// One attribute of an address; what is not known stays zero, as in the driver.
void store_attribute(CUpointer_attribute attribute,
                     CUdeviceptr base,
                     const Allocation& range,
                     void* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = range.type;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<bool*>(value) = range.managed;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<bool*>(value) = true;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = range.device;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = range.size_bytes;
      break;
    default:
      break;
  }
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuInit(unsigned int) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  if (state().process != 0 && state().process != ::getpid()) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  state().process = ::getpid();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  *version = state().driver_version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text) {
  static const char* const out_of_memory = "CUDA_ERROR_OUT_OF_MEMORY";
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? out_of_memory : "CUDA_ERROR_FAKED";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorString(CUresult, const char** text) {
  *text = "a failure of the fake driver";
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  HIPPO_FAKE_ENTER()
  *count = device_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  HIPPO_FAKE_ENTER()
  if (ordinal < 0 || ordinal >= device_count) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice) {
  HIPPO_FAKE_ENTER()
  std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  HIPPO_FAKE_ENTER()
  for (int index = 0; index < 16; ++index) {
    uuid->bytes[index] = static_cast<char>(index * 16 + device);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(size_t* size_bytes, CUdevice device) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  *size_bytes = state().devices.at(static_cast<std::size_t>(device)).memory_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char* text, int length, CUdevice) {
  HIPPO_FAKE_ENTER()
  std::snprintf(text, static_cast<std::size_t>(length), "0000:FA:CE.0");
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto set = state().attributes.find(attribute);
  *value = set == state().attributes.end() ? default_attribute(attribute) : set->second;
  return CUDA_SUCCESS;
}

// NOLINTNEXTLINE(readability-identifier-naming): theirs
CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int, CUdevice device) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  *context = fake_cuda::make_context(device);
  context_stack().push_back(*context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext context) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  return state().own_contexts.erase(context) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit, size_t) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  std::this_thread::sleep_for(std::chrono::milliseconds(state().context_ms));
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  ++state().devices.at(static_cast<std::size_t>(device)).retained;
  *context = fake_cuda::context_of(device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  int& retained = state().devices.at(static_cast<std::size_t>(device)).retained;
  if (retained == 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  --retained;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  HIPPO_FAKE_ENTER()
  if (!context_stack().empty()) {
    context_stack().pop_back();
  }
  if (context != nullptr) {
    context_stack().push_back(context);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  HIPPO_FAKE_ENTER()
  *context = context_stack().empty() ? nullptr : context_stack().back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context) {
  HIPPO_FAKE_ENTER()
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  *context = context_stack().back();
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  *device = current_device();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  const auto& device = state().devices.at(static_cast<std::size_t>(current_device()));
  *free_bytes = device.memory_bytes - device.taken_bytes;
  *total_bytes = device.memory_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t size_bytes) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  return fake_cuda::take(address, size_bytes, current_device());
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  return fake_cuda::give(address);
}

CUresult CUDAAPI cuMemHostRegister(void* memory, size_t size_bytes, unsigned int flags) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  const auto begin = reinterpret_cast<CUdeviceptr>(memory);
  const auto next = state().registrations.lower_bound(begin);
  const bool overlaps = fake_cuda::around(state().registrations, begin) != nullptr ||
                        (next != state().registrations.end() && next->first < begin + size_bytes);
  if (overlaps) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (size_bytes == 0 || !can_pin(memory, size_bytes, read_only)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state().registrations[begin] = {size_bytes, current_device(), CU_MEMORYTYPE_HOST};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void* memory) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  return state().registrations.erase(reinterpret_cast<CUdeviceptr>(memory)) == 1
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr* address, void* memory, unsigned int) {
  HIPPO_FAKE_ENTER_WITH_CONTEXT()
  const std::lock_guard lock(state().mutex);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return fake_cuda::around(state().registrations, *address) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                       : CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int count,
                                        CUpointer_attribute* attributes,
                                        void** values,
                                        CUdeviceptr address) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto* range = fake_cuda::around(state().allocations, address);
  if (range == nullptr) {
    range = fake_cuda::around(state().registrations, address);
  }
  for (unsigned index = 0; range != nullptr && index < count; ++index) {
    store_attribute(attributes[index], range->first, range->second, values[index]);
  }
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}  // extern "C"
