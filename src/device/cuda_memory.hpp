// Memory of a CUDA device: our own allocations, and a look at everybody else's.
#pragma once

#if HIPPOGRIFF_HAS_CUDA

#include "device/cuda_blocks.hpp"
#include "device/cuda_context.hpp"
#include "device/cuda_device.hpp"
#include "device/cuda_slabs.hpp"
#include "device/cuda_stream.hpp"

#include <chrono>
#include <list>
#include <map>
#include <mutex>
#include <optional>

namespace hippogriff {

std::optional<CudaPlace> locate_cuda_memory(const CudaDriver& driver,
                                            DeviceAddress address) noexcept;

// Blocks of more than 1 MiB, smaller pieces from slabs; where CudaBlocks are not supported, what
// the driver allocates. Thread-safe: one lock, held over the driver's calls, within which no other
// lock of ours is taken. Destruction releases what is left, and waits for the work that uses it.
class CudaMemory {
 public:
  static constexpr std::chrono::seconds allocation_timeout{10};

  explicit CudaMemory(const CudaContext& context);
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  // What an allocation may hope for: free on the device, kept, or released and not awaited.
  [[nodiscard]] DeviceMemory amount();
  // Waits so long for the work that uses released memory when there is no other.
  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes, std::chrono::nanoseconds patience);
  // What is queued in the device's context up to now may go on using the memory: it is used again
  // or unmapped by a later call, when an event behind that work has come. Recording such an event
  // spoils every graph that a stream of the context is capturing, in whatever mode; so it is done
  // only when more than cuda_kept_bytes_max is released, or when memory is short.
  void release(DeviceAddress address) noexcept;
  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) const;

 private:
  struct Allocation {
    std::uint64_t size_bytes;  // as asked for
    CudaBlock block;           // what it has: a block or a piece of a slab
  };

  using Allocations = std::map<std::uint64_t, Allocation>;  // by address

  // Memory that is free once the event has come.
  struct Batch {
    explicit Batch(const CudaContext& context) : event(context) {}

    CudaEvent event;
    Allocations allocations;
  };

  class Attempt;
  class AllOver;

  [[nodiscard]] CUresult allocate_block(std::size_t size_bytes,
                                        std::chrono::nanoseconds patience,
                                        DeviceAddress* address);
  [[nodiscard]] CUresult allocate_plain(std::size_t size_bytes, DeviceAddress* address);
  [[noreturn]] void fail_full(std::size_t size_bytes);
  void release_plain(DeviceAddress address) const noexcept;
  void settle() noexcept;
  void look() noexcept;

  // With the lock held:
  [[nodiscard]] CUresult take(std::size_t size_bytes, DeviceAddress* address);
  void give(const CudaBlock& block) noexcept;
  // Puts an event behind all work for what was released since the last. Released memory stays where
  // it is when the driver refuses.
  CUresult record_released();
  // Gives back what no work uses any more. Throws Error(device_error) when that work failed.
  void collect();

  [[nodiscard]] bool all_over() const { return released_.empty() && batches_.empty(); }

  const CudaContext& context_;
  std::uint64_t total_bytes_ = 0;
  mutable std::mutex mutex_;
  std::optional<CudaBlocks> blocks_;
  std::optional<CudaSlabs> slabs_;  // with blocks_
  Allocations live_;
  Allocations released_;  // behind which there is no event yet
  std::uint64_t released_bytes_ = 0;
  std::list<Batch> batches_;           // oldest first, so that their events come in this order
  std::uint64_t collected_count_ = 0;  // of batches
};

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
