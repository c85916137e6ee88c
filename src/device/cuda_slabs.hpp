// Small pieces of device memory, cut from blocks.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_blocks.hpp"

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <vector>

namespace hippogriff {

// A slab is a block cut into pieces of one size: a power of two from 256 bytes to 1 MiB, to which
// they are aligned. Not thread-safe.
class CudaSlabs {
 public:
  static constexpr std::uint64_t piece_bytes_min = 256;
  static constexpr std::uint64_t piece_bytes_max = std::uint64_t{1} << 20;

  explicit CudaSlabs(CudaBlocks& blocks) : blocks_(blocks) {}

  // For 1 to piece_bytes_max bytes. Fails as CudaBlocks::take does.
  [[nodiscard]] CUresult take(std::uint64_t size_bytes, CudaBlock* piece);
  // A piece that take made and no work uses any more. A slab without pieces in use is given back.
  void give(const CudaBlock& piece) noexcept;

 private:
  static constexpr std::size_t class_count = 13;

  struct Slab {
    // Without its block.
    Slab(std::uint64_t piece, std::uint32_t count) : piece_bytes(piece), piece_count(count) {
      free_pieces.reserve(count);
    }

    CudaBlock block;
    std::uint64_t piece_bytes;
    std::uint32_t piece_count;
    std::uint32_t cut_count = 0;             // pieces from the start that have been in use
    std::vector<std::uint32_t> free_pieces;  // of those; has room for all

    [[nodiscard]] bool full() const { return free_pieces.empty() && cut_count == piece_count; }

    [[nodiscard]] bool unused() const { return free_pieces.size() == cut_count; }
  };

  using Slabs = std::list<Slab>;

  [[nodiscard]] CUresult add_slab(Slabs& slabs, std::uint64_t piece_bytes);

  CudaBlocks& blocks_;
  std::array<Slabs, class_count> slabs_;  // by piece size; those that are not full come first
  std::map<CUdeviceptr, Slabs::iterator> by_address_;
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
