// An array in regions of one size, for what is known of each.
#pragma once

#include "base/range.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace hippogriff::ondemand {

// Sizes and offsets in bytes, of the array.
class Regions {
 public:
  // Of so many bytes each, or more where there would be more than so many.
  Regions(std::uint64_t size_bytes, std::uint64_t region_bytes_min, std::uint64_t count_max)
      : size_bytes_(size_bytes),
        region_bytes_(std::max(region_bytes_min, size_bytes / count_max + 1)) {}

  [[nodiscard]] std::size_t count() const {
    return (size_bytes_ + region_bytes_ - 1) / region_bytes_;
  }

  [[nodiscard]] std::size_t number_at(std::uint64_t offset) const { return offset / region_bytes_; }

  [[nodiscard]] Range part(std::size_t number) const {
    const std::uint64_t begin = number * region_bytes_;
    return {begin, std::min(region_bytes_, size_bytes_ - begin)};
  }

 private:
  std::uint64_t size_bytes_;
  std::uint64_t region_bytes_;
};

}  // namespace hippogriff::ondemand
