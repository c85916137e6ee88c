// Which parts of an array the kernel should begin to write to the drive, so that a flush finds
// little left: a region whenever as many bytes of it were written as it has. So what is written in
// order goes to the drive once, and what is written here and there never more often than it was
// written.
#pragma once

#include "array/regions.hpp"

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace hippogriff::ondemand {

// Thread-safe. Sizes and offsets in bytes, of the array.
class WriteBehind {
 public:
  explicit WriteBehind(std::uint64_t size_bytes)
      : regions_(size_bytes, region_bytes_min, regions_max), written_(regions_.count()) {}

  // Of a part that was written just now: the region to be written to the drive.
  [[nodiscard]] std::optional<Range> note_written(const Range& part) {
    const std::size_t number = regions_.number_at(part.offset);
    const Range region = regions_.part(number);
    std::atomic<std::uint64_t>& written = written_[number];
    const std::uint64_t before = written.fetch_add(part.size, std::memory_order_relaxed);
    if (before >= region.size || before + part.size < region.size) {
      return std::nullopt;  // for somebody else, or not yet
    }
    written.store(0, std::memory_order_relaxed);
    return region;
  }

 private:
  static constexpr std::uint64_t region_bytes_min = std::uint64_t{8} << 20;
  static constexpr std::uint64_t regions_max = 4096;

  Regions regions_;
  std::vector<std::atomic<std::uint64_t>> written_;
};

}  // namespace hippogriff::ondemand
