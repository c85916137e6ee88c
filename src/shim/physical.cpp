// Who holds which physical block.
#include "shim/physical.hpp"

#include "shim/ledger.hpp"

#include <iterator>
#include <new>
#include <utility>

namespace hippogriff::shim {

PhysicalBlock::~PhysicalBlock() {
  ledger().give(device_, size_bytes_);
}

void PhysicalMemory::hold(CUmemGenericAllocationHandle handle,
                          std::shared_ptr<PhysicalBlock> block) noexcept {
  try {
    const auto [entry, inserted] = handles_.try_emplace(handle);
    entry->second.count += inserted ? 0 : 1;
    if (block != nullptr) {
      entry->second.block = std::move(block);
    }
  } catch (const std::bad_alloc&) {
    return;
  }
}

CUresult PhysicalMemory::release(CUmemGenericAllocationHandle handle) noexcept {
  const std::lock_guard lock(mutex_);
  const CUresult result = HIPPO_REAL(cuMemRelease)(handle);
  if (result == CUDA_SUCCESS) {
    const auto found = handles_.find(handle);
    if (found != handles_.end() && --found->second.count == 0) {
      handles_.erase(found);
    }
  }
  return result;
}

CUresult PhysicalMemory::retain(CUmemGenericAllocationHandle* handle, void* address) noexcept {
  const std::lock_guard lock(mutex_);
  const CUresult result = HIPPO_REAL(cuMemRetainAllocationHandle)(handle, address);
  if (result == CUDA_SUCCESS && handle != nullptr) {
    const auto block = mapped_at(reinterpret_cast<CUdeviceptr>(address));
    if (block != nullptr) {
      hold(*handle, block);
    }
  }
  return result;
}

std::shared_ptr<PhysicalBlock> PhysicalMemory::mapped_at(CUdeviceptr address) noexcept {
  const auto next = mappings_.upper_bound(address);
  if (next == mappings_.begin()) {
    return nullptr;
  }
  const auto& [begin, mapping] = *std::prev(next);
  return address - begin < mapping.size_bytes ? mapping.block : nullptr;
}

CUresult PhysicalMemory::map(CUdeviceptr address,
                             std::size_t size_bytes,
                             std::size_t offset_bytes,
                             CUmemGenericAllocationHandle handle,
                             unsigned long long flags) noexcept {
  const std::lock_guard lock(mutex_);
  const CUresult result = HIPPO_REAL(cuMemMap)(address, size_bytes, offset_bytes, handle, flags);
  const auto found = handles_.find(handle);
  if (result == CUDA_SUCCESS && found != handles_.end()) {
    try {
      mappings_[address] = {size_bytes, found->second.block};
    } catch (const std::bad_alloc&) {
      return result;
    }
  }
  return result;
}

CUresult PhysicalMemory::unmap(CUdeviceptr address, std::size_t size_bytes) noexcept {
  const std::lock_guard lock(mutex_);
  const CUresult result = HIPPO_REAL(cuMemUnmap)(address, size_bytes);
  if (result == CUDA_SUCCESS) {
    // The driver unmaps whole mappings only.
    auto mapping = mappings_.lower_bound(address);
    while (mapping != mappings_.end() && mapping->first - address < size_bytes) {
      mapping = mappings_.erase(mapping);
    }
  }
  return result;
}

}  // namespace hippogriff::shim
