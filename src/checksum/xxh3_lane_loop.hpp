// The lanes of xxh3_lanes.hpp as a loop on this thread.
#pragma once

#include "checksum/xxh3_lanes.hpp"

namespace hippogriff::xxh3 {

// All lanes: the kernel's algorithm where there is no GPU.
struct LaneLoop {
  Lane lanes[lane_count];

  template <typename Function>
  void each(Function function) {
    for (unsigned index = 0; index < lane_count; ++index) {
      function(lanes[index], index);
    }
  }

  // Every accumulator gets the words of its neighbour.
  void exchange() {
    for (unsigned index = 0; index < lane_count; ++index) {
      lanes[index].sum += lanes[index ^ 1].lent;
    }
    for (Lane& lane : lanes) {
      lane.lent = 0;
    }
  }

  [[nodiscard]] std::uint64_t fold_pairs() const {
    std::uint64_t folded = 0;
    for (unsigned index = 0; index < lane_count; index += 2) {
      folded += multiply_fold(lanes[index].sum, lanes[index + 1].sum);
    }
    return folded;
  }
};

// What the kernel works out for one block, on this thread.
inline std::uint64_t hash_by_lanes(const std::uint8_t* input, std::uint64_t size) {
  if (size <= short_bytes_max) {
    return hash_short(input, size, default_secret);
  }
  LaneLoop lanes{};
  return reinterpret_cast<std::uintptr_t>(input) % 8 == 0
             ? hash_long<true>(lanes, input, size, default_secret)
             : hash_long<false>(lanes, input, size, default_secret);
}

}  // namespace hippogriff::xxh3
