// Which device memory transfers in flight use: nobody may write what another reads or writes.
#pragma once

#include "base/range.hpp"
#include "device/device.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace hippogriff {

enum class MemoryUse : std::uint8_t { reads, writes };

// Thread-safe.
class InFlight {
 public:
  // A use for a scope. Throws as begin does.
  class Use {
   public:
    Use(InFlight& all, DeviceAddress address, std::uint64_t size_bytes, MemoryUse use)
        : all_(all), address_(address), number_(all.begin(address, size_bytes, use)) {}

    ~Use() { all_.end(address_, number_); }

    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    InFlight& all_;
    const DeviceAddress address_;
    const std::uint64_t number_;
  };

  // Reads of many ranges for a scope: they begin and end together, or none does. Throws as begin.
  class Reads {
   public:
    Reads(InFlight& all, std::vector<Range> ranges)
        : all_(all), number_(all.begin_reads(std::move(ranges))) {}

    ~Reads() { all_.end_reads(number_); }

    Reads(const Reads&) = delete;
    Reads& operator=(const Reads&) = delete;

   private:
    InFlight& all_;
    const std::uint64_t number_;
  };

  // Throws Error(busy) when the range overlaps one in flight and one of both writes, and
  // Error(not_initialized) once closed. Returns the number to end it with.
  std::uint64_t begin(DeviceAddress address, std::uint64_t size_bytes, MemoryUse use);
  void end(DeviceAddress address, std::uint64_t number);
  // The same for many ranges that are read, at the price of few.
  std::uint64_t begin_reads(std::vector<Range> ranges);
  void end_reads(std::uint64_t number);
  // Nothing begins any more.
  void close();
  // False when something is in flight still at the deadline.
  [[nodiscard]] bool wait_empty(std::chrono::steady_clock::time_point deadline);
  [[nodiscard]] bool uses(DeviceAddress address, std::uint64_t size_bytes) const;

 private:
  struct Write {
    std::uint64_t end;
    std::uint64_t number;
  };

  [[nodiscard]] bool written(Range range) const;
  [[nodiscard]] bool read(Range range) const;
  [[nodiscard]] bool read_with_others(Range range) const;
  void refuse_when_closed() const;
  void tell_when_empty();

  mutable std::mutex mutex_;
  std::condition_variable emptied_;
  bool closed_ = false;
  // Writes overlap nothing, so that one look finds what is in a range, however many there are.
  std::map<std::uint64_t, Write> writes_;  // by address
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t>
      reads_;  // (address, number): end
  std::uint64_t longest_read_bytes_ = 0;
  // By number: disjoint ranges, ascending. There are few at a time.
  std::map<std::uint64_t, std::vector<Range>> reads_together_;
  std::uint64_t next_number_ = 1;
};

// What one transfer uses, ended together. Not thread-safe; `all` must outlive it.
class MemoryUses {
 public:
  explicit MemoryUses(InFlight& all) : all_(all) {}

  ~MemoryUses() { end(); }

  MemoryUses(const MemoryUses&) = delete;
  MemoryUses& operator=(const MemoryUses&) = delete;

  // Throws as InFlight::begin does.
  void begin(DeviceAddress address, std::uint64_t size_bytes, MemoryUse use) {
    numbers_.emplace_back(address, 0);
    try {
      numbers_.back().second = all_.begin(address, size_bytes, use);
    } catch (...) {
      numbers_.pop_back();
      throw;
    }
  }

  void end() noexcept {
    for (const auto& [address, number] : numbers_) {
      all_.end(address, number);
    }
    numbers_.clear();
  }

 private:
  InFlight& all_;
  std::vector<std::pair<DeviceAddress, std::uint64_t>> numbers_;
};

}  // namespace hippogriff
