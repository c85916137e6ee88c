// Virtual memory: cuMemCreate, and what keeps its memory alive.
#include "shim/accounts.hpp"
#include "shim/ledger.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <memory>
#include <new>
#include <utility>

namespace hippogriff::shim {
namespace {

CUresult CUDAAPI create(CUmemGenericAllocationHandle* handle,
                        std::size_t size_bytes,
                        const CUmemAllocationProp* properties,
                        unsigned long long flags) {
  const auto call = [&] { return HIPPO_REAL(cuMemCreate)(handle, size_bytes, properties, flags); };
  if (properties == nullptr || counted_device(properties->location) < 0) {
    return call();
  }
  const int device = counted_device(properties->location);
  if (!take_bytes(device, size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::shared_ptr<PhysicalBlock> block;
  try {
    block = std::make_shared<PhysicalBlock>(device, size_bytes);
  } catch (const std::bad_alloc&) {
    ledger().give(device, size_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return accounts().physical.create(std::move(block), call, [handle] { return *handle; });
}

CUresult CUDAAPI release_handle(CUmemGenericAllocationHandle handle) {
  return accounts().physical.release(handle);
}

CUresult CUDAAPI retain(CUmemGenericAllocationHandle* handle, void* address) {
  return accounts().physical.retain(handle, address);
}

CUresult CUDAAPI map(CUdeviceptr address,
                     std::size_t size_bytes,
                     std::size_t offset_bytes,
                     CUmemGenericAllocationHandle handle,
                     unsigned long long flags) {
  return accounts().physical.map(address, size_bytes, offset_bytes, handle, flags);
}

CUresult CUDAAPI unmap(CUdeviceptr address, std::size_t size_bytes) {
  return accounts().physical.unmap(address, size_bytes);
}

}  // namespace

std::span<const Wrapper> physical_wrappers() noexcept {
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuMemCreate, &create),
      HIPPO_WRAPPER(cuMemRelease, &release_handle),
      HIPPO_WRAPPER(cuMemRetainAllocationHandle, &retain),
      HIPPO_WRAPPER(cuMemMap, &map),
      HIPPO_WRAPPER(cuMemUnmap, &unmap),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
