// The null driver's cuGetProcAddress, with versions as the driver has them.
#include "testing/null_cuda/null_state.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <string>

using null_cuda::state;

namespace {

struct Meaning {
  const char* name;
  int version;
  const char* symbol;
};

// Of names that have changed, the oldest meaning first; all others mean themselves since 2000.
constexpr Meaning meanings[] = {
    {"cuMemAlloc", 3020, "cuMemAlloc_v2"},
    {"cuMemFree", 3020, "cuMemFree_v2"},
    {"cuMemGetInfo", 3020, "cuMemGetInfo_v2"},
    {"cuDeviceTotalMem", 3020, "cuDeviceTotalMem_v2"},
    {"cuCtxCreate", 3020, "cuCtxCreate_v2"},
    {"cuCtxCreate", 12050, "cuCtxCreate_v4"},
    {"cuCtxCreate", 13040, "cuDriverGetVersion"},  // a version the shim cannot know
    {"cuCtxDestroy", 4000, "cuCtxDestroy_v2"},
    {"cuGetProcAddress", 11030, "cuGetProcAddress"},
    {"cuGetProcAddress", 12000, "cuGetProcAddress_v2"},
    {"cuGraphInstantiate", 12000, "cuGraphInstantiateWithFlags"},
};

// What a driver may answer instead of the exported function.
CUresult CUDAAPI private_allocation(CUdeviceptr* address, std::size_t size_bytes) {
  return cuMemAlloc_v2(address, size_bytes);
}

void* own_symbol(const std::string& name) {
  static void* const library = [] {
    Dl_info info = {};
    ::dladdr(reinterpret_cast<const void*>(&own_symbol), &info);
    return ::dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  return ::dlsym(library, name.c_str());
}

CUresult look_up(const char* name, void** found, int version, cuuint64_t flags) {
  std::string symbol = name;
  const int known = std::min(version, state().version);
  for (const Meaning& meaning : meanings) {
    if (std::strcmp(name, meaning.name) == 0 && meaning.version <= known) {
      symbol = meaning.symbol;
    }
  }
  *found = nullptr;
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    *found = own_symbol(symbol + "_ptsz");
  }
  if (*found == nullptr) {
    *found = own_symbol(symbol);
  }
  if (state().private_addresses && symbol == "cuMemAlloc_v2") {
    *found = reinterpret_cast<void*>(&private_allocation);
  }
  return *found == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuGetProcAddress(const char* name, void** found, int version, cuuint64_t flags) {
  return look_up(name, found, version, flags);
}

CUresult CUDAAPI cuGetProcAddress_v2(const char* name,
                                     void** found,
                                     int version,
                                     cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status) {
  const CUresult result = look_up(name, found, version, flags);
  if (status != nullptr) {
    *status =
        result == CUDA_SUCCESS ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return result;
}

#pragma GCC visibility pop
}  // extern "C"
