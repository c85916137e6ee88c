// Physical memory of the virtual memory functions: it lives while a handle or a mapping holds it.
#pragma once

#include "shim/driver_api.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace hippogriff::shim {

// Bytes that go back to the ledger with the last handle and the last mapping.
class PhysicalBlock {
 public:
  PhysicalBlock(int device, std::uint64_t size_bytes) noexcept
      : device_(device), size_bytes_(size_bytes) {}

  ~PhysicalBlock();
  PhysicalBlock(const PhysicalBlock&) = delete;
  PhysicalBlock& operator=(const PhysicalBlock&) = delete;

 private:
  const int device_;
  const std::uint64_t size_bytes_;
};

// Thread-safe. These calls are rare and slow, so one lock is held while the driver works: a handle
// or an address that it hands out again is then never taken for the one before.
class PhysicalMemory {
 public:
  // Both call the driver under the lock; call() answers its result.
  template <typename Call, typename Handle>
  CUresult create(std::shared_ptr<PhysicalBlock> block, Call&& call, Handle&& handle) {
    const std::lock_guard lock(mutex_);
    const CUresult result = call();
    if (result == CUDA_SUCCESS) {
      hold(handle(), std::move(block));
    }
    return result;
  }

  CUresult release(CUmemGenericAllocationHandle handle) noexcept;
  CUresult retain(CUmemGenericAllocationHandle* handle, void* address) noexcept;
  CUresult map(CUdeviceptr address,
               std::size_t size_bytes,
               std::size_t offset_bytes,
               CUmemGenericAllocationHandle handle,
               unsigned long long flags) noexcept;
  CUresult unmap(CUdeviceptr address, std::size_t size_bytes) noexcept;

 private:
  struct Handle {
    std::shared_ptr<PhysicalBlock> block;
    unsigned count = 1;
  };

  void hold(CUmemGenericAllocationHandle handle, std::shared_ptr<PhysicalBlock> block) noexcept;
  std::shared_ptr<PhysicalBlock> mapped_at(CUdeviceptr address) noexcept;

  std::mutex mutex_;
  std::unordered_map<CUmemGenericAllocationHandle, Handle> handles_;

  struct Mapping {
    std::size_t size_bytes = 0;
    std::shared_ptr<PhysicalBlock> block;
  };

  std::map<CUdeviceptr, Mapping> mappings_;
};

}  // namespace hippogriff::shim
