// The host device's memory: a limit, a pool for small allocations, mappings for large ones.
#pragma once

#include "device/device.hpp"
#include "device/host_device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_set>

namespace hippogriff {

// Anonymous pages of this process, unmapped with the object. Sizes in bytes.
class PageMapping {
 public:
  // Reserves address space; pages come at first touch, huge where the size makes that worth it.
  // Throws std::bad_alloc when the system gives none.
  explicit PageMapping(std::size_t size_bytes);
  ~PageMapping();
  PageMapping(const PageMapping&) = delete;
  PageMapping& operator=(const PageMapping&) = delete;
  PageMapping(PageMapping&&) = delete;
  PageMapping& operator=(PageMapping&&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] std::size_t size_bytes() const { return size_bytes_; }

  // Brings every page into memory now. Throws std::bad_alloc.
  void populate();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

// Allocations with one limit, counted in multiples of 256 bytes. Thread-safe. What is still
// allocated goes with the object.
class HostMemory {
 public:
  HostMemory(std::string device_name,
             std::uint64_t limit_bytes,
             std::shared_ptr<MemoryLedger> ledger = nullptr);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  // Throws Error: invalid_argument for 0 bytes, out_of_device_memory beyond the limit.
  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes);
  // Null is fine; any other address that allocate did not return aborts as our bug.
  void release(DeviceAddress address) noexcept;
  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) const;
  [[nodiscard]] DeviceMemory memory() const;

 private:
  static constexpr std::size_t class_count = 10;  // blocks of 256 B, 512 B … 128 KiB

  // Memory cut into blocks of one size; a large allocation is a slab of one block.
  struct Slab {
    Slab(std::size_t slab_size_bytes, std::size_t block);

    PageMapping pages;
    std::size_t block_bytes;
    std::vector<std::uint32_t> free_blocks;
    std::size_t block_count;
  };

  struct Allocation {
    std::uint64_t size_bytes;     // as asked for
    std::uint64_t counted_bytes;  // against the limit
    std::shared_ptr<Slab> slab;
  };

  // Against the limit; what it returns, or throws.
  std::uint64_t count(std::size_t size_bytes);
  [[nodiscard]] std::shared_ptr<Slab> slab_for(std::size_t counted_bytes);
  void give_back(const std::shared_ptr<Slab>& slab, std::uint64_t address) noexcept;
  [[noreturn]] void refuse(std::size_t size_bytes, int errno_value) const;
  [[noreturn]] void refuse_promised(std::size_t size_bytes) const;

  const std::string device_name_;
  const std::uint64_t limit_bytes_;
  const std::shared_ptr<MemoryLedger> ledger_;
  mutable std::shared_mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_;  // by base address
  // Per class the slabs with a free block. A full slab lives by its allocations alone.
  std::array<std::unordered_set<std::shared_ptr<Slab>>, class_count> open_slabs_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace hippogriff
