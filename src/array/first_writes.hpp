// Where a new array, which is all holes, is written for the first time: blocks for a whole region
// are cheaper to have, and writes past the page cache into them need not wait for each other.
#pragma once

#include "base/range.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

namespace hippogriff::ondemand {

// Thread-safe. Sizes and offsets in bytes, of the array. An array that stays full of holes takes a
// region for each line.
class FirstWrites {
 public:
  explicit FirstWrites(std::uint64_t size_bytes)
      : size_bytes_(size_bytes),
        region_bytes_(std::max(region_bytes_min, size_bytes / regions_max + 1)),
        seen_((size_bytes + region_bytes_ - 1) / region_bytes_),
        left_bytes_(size_bytes) {}

  // The region in which a part that is to be written begins, for whoever writes there first.
  [[nodiscard]] std::optional<Range> note(const Range& part) {
    const std::uint64_t number = part.offset / region_bytes_;
    std::atomic<bool>& seen = seen_[number];
    if (seen.load(std::memory_order_relaxed) || seen.exchange(true, std::memory_order_relaxed)) {
      return std::nullopt;
    }
    return Range{number * region_bytes_,
                 std::min(region_bytes_, size_bytes_ - number * region_bytes_)};
  }

  void note_allocated(const Range& region) {
    left_bytes_.fetch_sub(region.size, std::memory_order_relaxed);
  }

  // What of the array may need blocks yet.
  [[nodiscard]] std::uint64_t left_bytes() const {
    return left_bytes_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint64_t region_bytes_min = std::uint64_t{16} << 20;
  static constexpr std::uint64_t regions_max = 65536;

  std::uint64_t size_bytes_;
  std::uint64_t region_bytes_;
  std::vector<std::atomic<bool>> seen_;
  std::atomic<std::uint64_t> left_bytes_;
};

}  // namespace hippogriff::ondemand
