// Blocks of device memory: addresses, memory, a mapping and the right to use it, one call each.
#include "device/cuda_blocks.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "base/range.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace hippogriff {
namespace {

// A kept block may be larger than what is asked for by one part in so many.
constexpr std::uint64_t waste_share_min = 8;

}  // namespace

bool CudaBlocks::supported(const CudaContext& context) {
  return context.driver().ctx_record_event != nullptr &&
         context.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
}

CudaBlocks::CudaBlocks(const CudaContext& context) : context_(context) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties_.location.id = context_.device();
  // Without it drives and network cards cannot reach the memory by themselves.
  properties_.allocFlags.gpuDirectRDMACapable =
      context_.attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) != 0 ? 1 : 0;
  std::size_t granularity_bytes = 0;
  context_.check(context_.driver().mem_granularity(
                     &granularity_bytes, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                 "ask for the granularity of device memory");
  granularity_bytes_ = granularity_bytes;
}

CUresult CudaBlocks::take(std::uint64_t size_bytes, CudaBlock* block) {
  size_bytes = align_up(size_bytes, granularity_bytes_);
  if (take_kept(size_bytes, block)) {
    return CUDA_SUCCESS;
  }
  Blocks made;  // its memory comes first, so that nothing can fail once the block is mapped
  made.emplace(0, State{size_bytes, 0});
  CUdeviceptr address = 0;
  CUresult result = map(size_bytes, &address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && kept_bytes_ != 0) {
    unmap_kept();
    result = map(size_bytes, &address);
  }
  if (result != CUDA_SUCCESS) {
    return result;
  }
  auto entry = made.extract(made.begin());
  entry.key() = address;
  used_.insert(std::move(entry));
  *block = {address, size_bytes};
  return CUDA_SUCCESS;
}

bool CudaBlocks::take_kept(std::uint64_t size_bytes, CudaBlock* block) {
  auto best = kept_.end();
  for (auto one = kept_.begin(); one != kept_.end(); ++one) {
    const std::uint64_t kept_bytes = one->second.size_bytes;
    const bool fits =
        kept_bytes >= size_bytes && kept_bytes - size_bytes <= kept_bytes / waste_share_min;
    if (fits && (best == kept_.end() || kept_bytes < best->second.size_bytes)) {
      best = one;
    }
  }
  if (best == kept_.end()) {
    return false;
  }
  *block = {best->first, best->second.size_bytes};
  kept_bytes_ -= block->size_bytes;
  used_.insert(kept_.extract(best));
  return true;
}

void CudaBlocks::give(const CudaBlock& block) noexcept {
  auto entry = used_.extract(block.address);
  HIPPO_ASSERT(!entry.empty());
  const std::uint64_t size_bytes = entry.mapped().size_bytes;
  if (size_bytes > cuda_kept_bytes_max) {
    unmap(block.address, size_bytes);
    return;
  }
  while (kept_bytes_ + size_bytes > cuda_kept_bytes_max) {
    const auto oldest =
        std::min_element(kept_.begin(), kept_.end(), [](const auto& left, const auto& right) {
          return left.second.turn < right.second.turn;
        });
    kept_bytes_ -= oldest->second.size_bytes;
    unmap(oldest->first, oldest->second.size_bytes);
    kept_.erase(oldest);
  }
  entry.mapped().turn = turn_++;
  kept_bytes_ += size_bytes;
  kept_.insert(std::move(entry));
}

void CudaBlocks::unmap_kept() noexcept {
  for (const auto& [address, state] : kept_) {
    unmap(address, state.size_bytes);
  }
  kept_.clear();
  kept_bytes_ = 0;
}

void CudaBlocks::unmap_all() noexcept {
  unmap_kept();
  for (const auto& [address, state] : used_) {
    unmap(address, state.size_bytes);
  }
  used_.clear();
}

bool CudaBlocks::contains(CUdeviceptr address) const {
  const auto among = [address](const Blocks& blocks) {
    const auto after = blocks.upper_bound(address);
    return after != blocks.begin() &&
           address - std::prev(after)->first < std::prev(after)->second.size_bytes;
  };
  return among(used_) || among(kept_);
}

CUresult CudaBlocks::map(std::uint64_t size_bytes, CUdeviceptr* address) const {
  const CudaDriver& driver = context_.driver();
  CUresult result = driver.mem_address_reserve(address, size_bytes, 0, 0, 0);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  result = back(*address, size_bytes);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(driver.mem_address_free(*address, size_bytes));
  }
  return result;
}

CUresult CudaBlocks::back(CUdeviceptr address, std::uint64_t size_bytes) const {
  const CudaDriver& driver = context_.driver();
  CUmemGenericAllocationHandle memory = 0;
  CUresult result = driver.mem_create(&memory, size_bytes, &properties_, 0);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  result = driver.mem_map(address, size_bytes, 0, memory, 0);
  // From here on the mapping alone keeps the memory.
  static_cast<void>(driver.mem_release(memory));
  if (result != CUDA_SUCCESS) {
    return result;
  }
  CUmemAccessDesc access{};
  access.location = properties_.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver.mem_set_access(address, size_bytes, &access, 1);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(driver.mem_unmap(address, size_bytes));
  }
  return result;
}

void CudaBlocks::unmap(CUdeviceptr address, std::uint64_t size_bytes) const noexcept {
  const CudaDriver& driver = context_.driver();
  // Addresses that stay mapped must not be given to others. A failure means a dead context.
  if (driver.mem_unmap(address, size_bytes) == CUDA_SUCCESS) {
    static_cast<void>(driver.mem_address_free(address, size_bytes));
  }
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
