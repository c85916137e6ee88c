// Slabs of device memory: which pieces of a block are free.
#include "device/cuda_slabs.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "base/range.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

namespace hippogriff {
namespace {

constexpr std::uint64_t slab_bytes_min = std::uint64_t{2} << 20;

std::size_t class_of(std::uint64_t size_bytes) {
  return static_cast<std::size_t>(std::bit_width((size_bytes - 1) / CudaSlabs::piece_bytes_min));
}

}  // namespace

CUresult CudaSlabs::take(std::uint64_t size_bytes, CudaBlock* piece) {
  const std::size_t index = class_of(size_bytes);
  Slabs& slabs = slabs_.at(index);
  if (slabs.empty() || slabs.front().full()) {
    const CUresult result = add_slab(slabs, piece_bytes_min << index);
    if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  Slab& slab = slabs.front();
  std::uint32_t number = slab.cut_count;
  if (slab.free_pieces.empty()) {
    ++slab.cut_count;
  } else {
    number = slab.free_pieces.back();
    slab.free_pieces.pop_back();
  }
  if (slab.full()) {
    slabs.splice(slabs.end(), slabs, slabs.begin());
  }
  *piece = {slab.block.address + number * slab.piece_bytes, slab.piece_bytes};
  return CUDA_SUCCESS;
}

CUresult CudaSlabs::add_slab(Slabs& slabs, std::uint64_t piece_bytes) {
  const std::uint64_t slab_bytes = align_up(slab_bytes_min, blocks_.granularity_bytes());
  // All host memory first, so that nothing can fail once there is a block.
  Slabs made;
  made.emplace_back(piece_bytes, static_cast<std::uint32_t>(slab_bytes / piece_bytes));
  std::map<CUdeviceptr, Slabs::iterator> entries;
  entries.emplace(0, made.begin());
  const CUresult result = blocks_.take(slab_bytes, &made.front().block);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  auto entry = entries.extract(entries.begin());
  entry.key() = made.front().block.address;
  by_address_.insert(std::move(entry));
  slabs.splice(slabs.begin(), made);
  return CUDA_SUCCESS;
}

void CudaSlabs::give(const CudaBlock& piece) noexcept {
  const auto entry = std::prev(by_address_.upper_bound(piece.address));
  const auto slab = entry->second;
  Slabs& slabs = slabs_.at(class_of(slab->piece_bytes));
  const std::uint64_t offset_bytes = piece.address - slab->block.address;
  slab->free_pieces.push_back(static_cast<std::uint32_t>(offset_bytes / slab->piece_bytes));
  if (slab->unused()) {
    blocks_.give(slab->block);
    by_address_.erase(entry);
    slabs.erase(slab);
    return;
  }
  slabs.splice(slabs.begin(), slabs, slab);
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
