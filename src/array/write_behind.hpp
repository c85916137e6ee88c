// Which parts of an array the kernel should begin to write to the drive, so that a flush finds
// little left: a region whenever as many bytes of it were written as it has. So what is written in
// order goes to the drive once, and what is written here and there never more often than it was
// written.
#pragma once

#include "base/range.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace hippogriff::ondemand {

// Thread-safe. Sizes and offsets in bytes, of the array.
class WriteBehind {
 public:
  explicit WriteBehind(std::uint64_t size_bytes)
      : size_bytes_(size_bytes),
        region_bytes_(std::max(region_bytes_min, size_bytes / regions_max + 1)),
        written_((size_bytes + region_bytes_ - 1) / region_bytes_) {}

  // Of a part that was written just now: the region to be written to the drive.
  [[nodiscard]] std::optional<Range> note_written(const Range& part) {
    const std::uint64_t number = part.offset / region_bytes_;
    const Range region{number * region_bytes_,
                       std::min(region_bytes_, size_bytes_ - number * region_bytes_)};
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

  std::uint64_t size_bytes_;
  std::uint64_t region_bytes_;
  std::vector<std::atomic<std::uint64_t>> written_;
};

}  // namespace hippogriff::ondemand
