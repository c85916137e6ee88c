// Memory of a CUDA device: our own allocations from a pool, and a look at everybody else's.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_context.hpp"
#include "device/cuda_device.hpp"
#include "device/cuda_stream.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace hippogriff {

// How many unused bytes our pool keeps for the next allocation instead of giving them back.
inline constexpr std::uint64_t cuda_pool_kept_bytes = 256ULL << 20;

std::optional<CudaPlace> locate_cuda_memory(const CudaDriver& driver,
                                            DeviceAddress address) noexcept;

// Thread-safe. Destruction releases what is left.
class CudaMemory {
 public:
  explicit CudaMemory(const CudaContext& context);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // What an allocation may hope for: free on the device, or unused in our pool.
  [[nodiscard]] DeviceMemory amount() const;
  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes);
  void release(DeviceAddress address) noexcept;
  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) const;

 private:
  void create_pool();
  void destroy_pool() noexcept;
  [[nodiscard]] CUresult try_allocate(CUdeviceptr* address, std::size_t size_bytes) const;
  void free_on_device(CUdeviceptr address) const noexcept;
  void wait_until_usable() const;
  [[nodiscard]] CUstream stream() const;
  [[nodiscard]] std::uint64_t pool_value(CUmemPool_attribute attribute) const;
  [[nodiscard]] std::uint64_t unused_pool_bytes() const;
  // Gives back what the pool keeps beyond its limit.
  void trim_pool() const;
  [[noreturn]] void fail_full(std::size_t size_bytes) const;

  const CudaContext& context_;
  std::uint64_t total_bytes_ = 0;
  CUmemoryPool pool_ = nullptr;         // null where the device has no memory pools
  std::unique_ptr<CudaStream> stream_;  // orders allocations; only with a pool
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> sizes_;  // address -> bytes
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
