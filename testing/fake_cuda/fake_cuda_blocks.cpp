// The driver functions themselves, as cuda.h declares them: virtual memory management. Addresses
// are host pages that nobody may touch until memory is mapped there and access is given.
#include "testing/fake_cuda/fake_state.hpp"

#include <cuda.h>

#include <sys/mman.h>

#include <mutex>

using fake_cuda::Physical;
using fake_cuda::state;

namespace {

constexpr std::size_t granularity_bytes = std::size_t{2} << 20;

bool is_whole(std::size_t size_bytes) {
  return size_bytes != 0 && size_bytes % granularity_bytes == 0;
}

// With the lock held.
void drop_reference(std::uint64_t number) {
  Physical& physical = state().physical.at(number);
  if (--physical.references == 0) {
    state().devices.at(static_cast<std::size_t>(physical.device)).taken_bytes -=
        physical.size_bytes;
    state().physical.erase(number);
  }
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity,
                                               const CUmemAllocationProp*,
                                               CUmemAllocationGranularity_flags) {
  HIPPO_FAKE_ENTER()
  *granularity = granularity_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(
    CUdeviceptr* address, size_t size_bytes, size_t, CUdeviceptr, unsigned long long) {
  HIPPO_FAKE_ENTER()
  if (!is_whole(size_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* pages =
      ::mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = reinterpret_cast<CUdeviceptr>(pages);
  const std::lock_guard lock(state().mutex);
  state().reservations[*address] = size_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t size_bytes) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto found = state().reservations.find(address);
  if (found == state().reservations.end() || found->second != size_bytes ||
      state().allocations.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  state().reservations.erase(found);
  ::munmap(reinterpret_cast<void*>(address), size_bytes);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle,
                             size_t size_bytes,
                             const CUmemAllocationProp* properties,
                             unsigned long long) {
  HIPPO_FAKE_ENTER()
  if (!is_whole(size_bytes) || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int number = properties->location.id;
  const std::lock_guard lock(state().mutex);
  auto& device = state().devices.at(static_cast<std::size_t>(number));
  if (size_bytes > device.memory_bytes - device.taken_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  device.taken_bytes += size_bytes;
  *handle = ++state().physical_count;
  state().physical[*handle] = {size_bytes, number};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  if (!state().physical.contains(handle)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  drop_reference(handle);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address,
                          size_t size_bytes,
                          size_t offset_bytes,
                          CUmemGenericAllocationHandle handle,
                          unsigned long long) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto physical = state().physical.find(handle);
  const auto reserved = state().reservations.find(address);
  if (offset_bytes != 0 || physical == state().physical.end() ||
      physical->second.size_bytes != size_bytes || reserved == state().reservations.end() ||
      reserved->second != size_bytes || state().allocations.contains(address)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  ++physical->second.references;
  state().allocations[address] = {
      size_bytes, physical->second.device, CU_MEMORYTYPE_DEVICE, false, handle};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t size_bytes) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto found = state().allocations.find(address);
  if (found == state().allocations.end() || found->second.memory == 0 ||
      found->second.size_bytes != size_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  drop_reference(found->second.memory);
  state().allocations.erase(found);
  // Work that still uses the memory ends the process, as it would end a context.
  auto* pages = reinterpret_cast<void*>(address);
  ::madvise(pages, size_bytes, MADV_DONTNEED);
  ::mprotect(pages, size_bytes, PROT_NONE);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address,
                                size_t size_bytes,
                                const CUmemAccessDesc* access,
                                size_t count) {
  HIPPO_FAKE_ENTER()
  const std::lock_guard lock(state().mutex);
  const auto found = state().allocations.find(address);
  if (found == state().allocations.end() || found->second.memory == 0 ||
      found->second.size_bytes != size_bytes || count != 1 ||
      access->location.id != found->second.device ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int result =
      ::mprotect(reinterpret_cast<void*>(address), size_bytes, PROT_READ | PROT_WRITE);
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

#pragma GCC visibility pop
}  // extern "C"
