// Device memory in blocks that the driver's virtual memory management maps.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_context.hpp"

#include <cstdint>
#include <map>

namespace hippogriff {

// How many bytes that nobody uses are kept for the next allocation instead of given back.
inline constexpr std::uint64_t cuda_kept_bytes_max = 256ULL << 20;

// Device memory from an address on.
struct CudaBlock {
  CUdeviceptr address = 0;
  std::uint64_t size_bytes = 0;
};

// Mapped rather than allocated, because the first allocation from a memory pool costs a process 7
// to 11 ms, whatever its size. On an H200 (driver 580.159) mapping takes 0.17 ms for 256 MiB, 0.07
// from the second time on, 0.43 for 8 GiB; unmapping 256 MiB takes 0.12 to 0.34 ms, and 100 GiB 65.
// Unmapping waits for no work. Not thread-safe. Destruction unmaps nothing.
class CudaBlocks {
 public:
  // Whether the device maps memory, and the driver can tell when work with it is over.
  [[nodiscard]] static bool supported(const CudaContext& context);

  // Throws Error(device_error).
  explicit CudaBlocks(const CudaContext& context);

  // Mapped memory is a multiple of this.
  [[nodiscard]] std::uint64_t granularity_bytes() const { return granularity_bytes_; }

  // A kept block of the rounded size, or up to an eighth of the block larger; else a new one. Gives
  // up what is kept before it returns CUDA_ERROR_OUT_OF_MEMORY.
  [[nodiscard]] CUresult take(std::uint64_t size_bytes, CudaBlock* block);
  // Keeps or unmaps a block that take made and no work uses any more.
  void give(const CudaBlock& block) noexcept;
  void unmap_kept() noexcept;
  // Those in use too.
  void unmap_all() noexcept;

  [[nodiscard]] std::uint64_t kept_bytes() const { return kept_bytes_; }

  // Whether the address lies in a block, in use or kept.
  [[nodiscard]] bool contains(CUdeviceptr address) const;

 private:
  struct State {
    std::uint64_t size_bytes;
    std::uint64_t turn;  // of being kept
  };

  using Blocks = std::map<CUdeviceptr, State>;

  [[nodiscard]] bool take_kept(std::uint64_t size_bytes, CudaBlock* block);
  // Undo what they did when they fail.
  [[nodiscard]] CUresult map(std::uint64_t size_bytes, CUdeviceptr* address) const;
  [[nodiscard]] CUresult back(CUdeviceptr address, std::uint64_t size_bytes) const;
  void unmap(CUdeviceptr address, std::uint64_t size_bytes) const noexcept;

  const CudaContext& context_;
  CUmemAllocationProp properties_{};
  std::uint64_t granularity_bytes_ = 0;
  Blocks used_;
  Blocks kept_;  // 128 at most of 2 MiB and more, so that searching it is cheap
  std::uint64_t kept_bytes_ = 0;
  std::uint64_t turn_ = 0;
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
