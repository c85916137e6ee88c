// The null driver's devices and contexts, and the calls whose arguments it keeps for tests to see.
#include "testing/null_cuda/null_state.hpp"
#include "testing/null_cuda/shared_gpu.hpp"

#include <cstdio>

using null_cuda::context_stack;
using null_cuda::null_device_count;
using null_cuda::state;

namespace {

using Guard = std::scoped_lock<std::mutex>;

CUresult create(CUcontext* context, CUdevice device) {
  const Guard lock(state().mutex);
  if (const CUresult result = null_cuda::admit_context(device); result != CUDA_SUCCESS) {
    return result;
  }
  *context = reinterpret_cast<CUcontext>(null_cuda::new_address());
  state().contexts[*context] = device;
  context_stack().push_back(*context);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuInit(unsigned) {
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int* version) {
  *version = state().version;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetCount(int* count) {
  *count = null_device_count;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < null_device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  for (char& byte : uuid->bytes) {
    byte = static_cast<char>(device + 1);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem_v2(std::size_t* size_bytes, CUdevice) {
  *size_bytes = null_cuda::null_device_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo_v2(std::size_t* free_bytes, std::size_t* total_bytes) {
  const Guard lock(state().mutex);
  CUcontext context = nullptr;
  int device = 0;
  if (const CUresult result = null_cuda::current(&context, &device); result != CUDA_SUCCESS) {
    return result;
  }
  *total_bytes = null_cuda::null_device_bytes;
  *free_bytes = null_cuda::null_device_bytes - null_cuda::held_bytes(device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned, CUdevice device) {
  return create(context, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext* context, CUctxCreateParams*, unsigned, CUdevice device) {
  return create(context, device);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context) {
  const Guard lock(state().mutex);
  const auto known = state().contexts.find(context);
  if (known == state().contexts.end()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  const int device = known->second;
  state().contexts.erase(known);
  null_cuda::end_context(context);
  null_cuda::tell_shared(device);
  std::erase(context_stack(), context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext* context) {
  *context = context_stack().empty() ? nullptr : context_stack().back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context) {
  context_stack().clear();
  if (context != nullptr) {
    context_stack().push_back(context);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context) {
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext* context) {
  if (context_stack().empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = context_stack().back();
  context_stack().pop_back();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device) {
  const Guard lock(state().mutex);
  CUcontext context = nullptr;
  return null_cuda::current(&context, device);
}

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  const Guard lock(state().mutex);
  null_cuda::Device& facts = state().devices.at(static_cast<std::size_t>(device));
  if (!facts.active && hippogriff::testing::SharedGpu::of_process() != nullptr) {
    if (const CUresult result = null_cuda::admit_context(device); result != CUDA_SUCCESS) {
      return result;
    }
  }
  ++facts.retained;
  facts.active = true;
  *context = null_cuda::primary_context(device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  const Guard lock(state().mutex);
  null_cuda::Device& facts = state().devices.at(static_cast<std::size_t>(device));
  if (facts.retained == 0) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (--facts.retained == 0) {
    null_cuda::end_primary_context(device);
  }
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const Guard lock(state().mutex);
  null_cuda::end_primary_context(device);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  const Guard lock(state().mutex);
  *flags = 0;
  *active = state().devices.at(static_cast<std::size_t>(device)).active ? 1 : 0;
  return CUDA_SUCCESS;
}

// NOLINTNEXTLINE(readability-function-size): theirs
CUresult CUDAAPI cuLaunchKernel(CUfunction function,
                                unsigned grid_x,
                                unsigned grid_y,
                                unsigned grid_z,
                                unsigned block_x,
                                unsigned block_y,
                                unsigned block_z,
                                unsigned shared_bytes,
                                CUstream stream,
                                void** parameters,
                                void** extra) {
  state().launch = {function,
                    {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes},
                    stream,
                    parameters,
                    extra};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuTexRefSetMipmapLevelBias(CUtexref, float bias) {
  state().bias = bias;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr* address,
                                       CUipcMemHandle handle,
                                       unsigned flags) {
  state().handle = handle;
  *address = flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
  *table = id;
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
}  // extern "C"
