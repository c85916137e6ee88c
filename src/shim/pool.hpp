// Memory pools: the driver keeps what a pool's allocations leave, so a pool is counted as a whole.
#pragma once

#include "shim/driver_api.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace hippogriff::shim {

// Counted are the most bytes its allocations had at once since `settle` last looked. Thread-safe.
class Pool {
 public:
  // Device bytes of a pool of `device`; a negative one is host memory, which is not counted.
  // `handle` null: the device's memory for graphs.
  Pool(int device, CUmemoryPool handle) noexcept : device_(device), handle_(handle) {}

  [[nodiscard]] int device() const noexcept { return device_; }

  [[nodiscard]] bool is_counted() const noexcept { return device_ >= 0; }

  // Takes what the allocation needs beyond what the pool holds unused. False: refused.
  bool take(std::uint64_t size_bytes) noexcept;
  // Undoes a take whose allocation the driver refused.
  void untake(std::uint64_t size_bytes) noexcept;
  // The allocation is free; the pool may keep its memory.
  void free(std::uint64_t size_bytes) noexcept;
  // Asks the driver what the pool still holds, and gives the rest back to the ledger.
  void settle() noexcept;
  // Makes the driver let go of what is unused first.
  void trim() noexcept;
  // The program destroyed the pool: from now on, what is freed is given back.
  void close() noexcept;

 private:
  [[nodiscard]] bool reserved_bytes(std::uint64_t* size_bytes) const noexcept;
  // False: allocations came or went since, and the figure may be older than they are.
  bool give_unused(std::uint64_t reserved_bytes, std::uint64_t generation) noexcept;
  // With the lock held. `drop`: an allocation is not, or no more; `keep`: gives what is counted
  // beyond that many bytes, or beyond what the allocations need, back to the ledger.
  void drop(std::uint64_t size_bytes) noexcept;
  void keep(std::uint64_t size_bytes) noexcept;

  const int device_;
  const CUmemoryPool handle_;
  std::mutex mutex_;
  // What takes still ask the ledger for covers their own allocations only, never what the driver
  // keeps: the ledger may refuse it.
  std::uint64_t used_bytes_ = 0;     // never more than counted and pending
  std::uint64_t pending_bytes_ = 0;  // asked of the ledger
  std::uint64_t counted_bytes_ = 0;  // in the ledger
  std::uint64_t generation_ = 0;     // of used_bytes_
  bool closed_ = false;
};

// Every pool the program has shown us. Thread-safe; the driver is asked without a lock of ours.
class Pools {
 public:
  void add(CUmemoryPool handle, int device) noexcept;
  // The pool, or the one it must be, made known now: nullptr only when host memory is out.
  std::shared_ptr<Pool> find(CUmemoryPool handle, int current_device) noexcept;
  // The pool if it is known; nullptr otherwise.
  std::shared_ptr<Pool> known(CUmemoryPool handle) noexcept;
  // What cuMemAllocAsync uses on the device; nullptr when the driver does not say.
  std::shared_ptr<Pool> current(int device) noexcept;
  std::shared_ptr<Pool> graph_memory(int device) noexcept;
  // The device's current pool may be another one now.
  void forget_current() noexcept;
  std::shared_ptr<Pool> remove(CUmemoryPool handle) noexcept;
  void restore(CUmemoryPool handle, const std::shared_ptr<Pool>& pool) noexcept;
  [[nodiscard]] std::vector<std::shared_ptr<Pool>> of_device(int device) noexcept;

 private:
  std::mutex mutex_;
  std::unordered_map<CUmemoryPool, std::shared_ptr<Pool>> pools_;
  std::unordered_map<int, std::shared_ptr<Pool>> current_;
  std::unordered_map<int, std::shared_ptr<Pool>> graphs_;
};

// Where a location's memory counts: the device's ordinal, -1 for host memory.
int counted_device(const CUmemLocation& location) noexcept;

}  // namespace hippogriff::shim
