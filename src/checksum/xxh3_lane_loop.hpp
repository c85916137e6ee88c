// The lanes of xxh3_lanes.hpp as a loop on this thread.
#pragma once

#include "checksum/xxh3_lanes.hpp"

namespace hippogriff::xxh3 {

// All lanes: the kernel's algorithm where there is no GPU.
struct LaneLoop {
  Lane teams[team_count][lane_count];

  template <typename Function>
  void each(Function function) {
    for (unsigned team = 0; team < team_count; ++team) {
      for (unsigned index = 0; index < lane_count; ++index) {
        function(teams[team][index], index, team);
      }
    }
  }

  // Every lane gains what its neighbour lends.
  void exchange() {
    each([this](Lane& lane, unsigned index, unsigned team) {
      lane.gain += teams[team][index ^ 1].lent;
    });
  }

  // Ends the rounds that the teams took, `rounds` at most, in their order.
  void settle(std::uint64_t rounds) {
    each([this, rounds](Lane& lane, unsigned index, unsigned) {
      for (unsigned team = 0; team < team_count && team < rounds; ++team) {
        xxh3::settle(lane, teams[team][index].gain);
      }
    });
  }

  [[nodiscard]] std::uint64_t fold_pairs() const {
    std::uint64_t folded = 0;
    for (unsigned index = 0; index < lane_count; index += 2) {
      folded += multiply_fold(teams[0][index].sum, teams[0][index + 1].sum);
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
