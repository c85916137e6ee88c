// Which device memory transfers in flight use: nobody may write what another reads or writes.
#pragma once

#include "base/range.hpp"
#include "device/device.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace hippogriff {

enum class MemoryUse : std::uint8_t { reads, writes };

// Thread-safe.
class InFlight {
 public:
  // Throws Error(busy) when the range overlaps one in flight and one of both writes.
  // Returns the number to end it with.
  std::uint64_t begin(DeviceAddress address, std::uint64_t size_bytes, MemoryUse use);
  void end(DeviceAddress address, std::uint64_t number);
  [[nodiscard]] bool uses(DeviceAddress address, std::uint64_t size_bytes) const;

 private:
  struct Entry {
    std::uint64_t end;
    MemoryUse use;
  };

  template <typename Found>
  bool any_overlap(Range range, Found&& found) const;

  mutable std::mutex mutex_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Entry> entries_;  // (address, number)
  std::uint64_t longest_bytes_ = 0;
  std::uint64_t next_number_ = 1;
};

}  // namespace hippogriff
