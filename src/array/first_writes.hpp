// Where a new array, which is all holes, is written for the first time: blocks for a whole region
// are cheaper to have, and writes past the page cache into them need not wait for each other.
#pragma once

#include "array/regions.hpp"

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
      : regions_(size_bytes, region_bytes_min, regions_max),
        seen_(regions_.count()),
        left_bytes_(size_bytes) {}

  // The region in which a part that is to be written begins, for whoever writes there first.
  [[nodiscard]] std::optional<Range> note(const Range& part) {
    const std::size_t number = regions_.number_at(part.offset);
    std::atomic<bool>& seen = seen_[number];
    if (seen.load(std::memory_order_relaxed) || seen.exchange(true, std::memory_order_relaxed)) {
      return std::nullopt;
    }
    return regions_.part(number);
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

  Regions regions_;
  std::vector<std::atomic<bool>> seen_;
  std::atomic<std::uint64_t> left_bytes_;
};

}  // namespace hippogriff::ondemand
