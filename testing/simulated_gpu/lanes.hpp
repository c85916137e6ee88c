// Lanes of a simulated warp: groups as include/hippogriff/array/group.hpp has them.
#pragma once

#include "testing/simulated_gpu/weak_memory.hpp"

#include <bit>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace hippogriff::simulated {

// What lanes do together: on a GPU each is another instruction, and all must come to the same.
enum class Act : std::uint8_t { meet, tell, vote, match };

class Warp {
 public:
  // What lanes that name each other say in turn. By parity, so that nobody overwrites what another
  // has still to read.
  struct Exchange {
    std::uint64_t said[2][32]{};
    Act act = Act::meet;  // what those do who are here
    VectorClock met[2];
    std::uint64_t turn[32]{};
    std::uint32_t here = 0;
    std::vector<int> waiting;
  };

  // All lanes of the mask say something, and this one goes on when all have. Orders nothing in
  // memory unless they meet, as on a GPU. Fails the run where they do different things.
  const std::uint64_t* say(std::uint32_t mask, std::uint32_t lane, std::uint64_t what, Act act);

 private:
  std::unordered_map<std::uint32_t, Exchange> exchanges_;
};

class SimulatedLanes {
 public:
  SimulatedLanes(Warp& warp, std::uint32_t mask, std::uint32_t lane)
      : warp_(&warp), mask_(mask), lane_(lane) {}

  // Lanes of these that go on without the others.
  [[nodiscard]] SimulatedLanes part(std::uint32_t mask) const { return {*warp_, mask, lane_}; }

  [[nodiscard]] std::uint32_t lane() const { return lane_; }

  [[nodiscard]] bool leads() const { return rank() == 0; }

  [[nodiscard]] std::uint32_t rank() const { return before_me(mask_); }

  [[nodiscard]] std::uint32_t size() const {
    return static_cast<std::uint32_t>(std::popcount(mask_));
  }

  void meet() const { warp_->say(mask_, lane_, 0, Act::meet); }

  template <typename T>
  [[nodiscard]] T told_by(std::uint32_t voter, T value) const {
    return static_cast<T>(
        warp_->say(mask_, lane_, static_cast<std::uint64_t>(value), Act::tell)[voter]);
  }

  template <typename T>
  [[nodiscard]] T told(T value) const {
    value = told_by(static_cast<std::uint32_t>(std::countr_zero(mask_)), value);
    meet();
    return value;
  }

  [[nodiscard]] std::uint32_t vote(bool value) const {
    return who_says(value ? 1 : 0, 1, Act::vote);
  }

  [[nodiscard]] bool all(bool value) const {
    const bool everyone = vote(value) == mask_;
    meet();
    return everyone;
  }

  [[nodiscard]] std::uint32_t leading(bool value) const {
    const std::uint32_t no = mask_ & ~vote(value);
    return static_cast<std::uint32_t>(std::popcount(mask_ & ((no & (0U - no)) - 1)));
  }

  [[nodiscard]] std::uint32_t before_me(std::uint32_t votes) const {
    return static_cast<std::uint32_t>(std::popcount(votes & ((1U << lane_) - 1)));
  }

  [[nodiscard]] SimulatedLanes with_same(std::uint64_t value) const {
    return part(who_says(value, value, Act::match));
  }

 private:
  [[nodiscard]] std::uint32_t who_says(std::uint64_t mine, std::uint64_t wanted, Act act) const {
    const std::uint64_t* said = warp_->say(mask_, lane_, mine, act);
    std::uint32_t those = 0;
    for (std::uint32_t left = mask_; left != 0; left &= left - 1) {
      const auto lane = static_cast<std::uint32_t>(std::countr_zero(left));
      those |= said[lane] == wanted ? 1U << lane : 0U;
    }
    return those;
  }

  Warp* warp_;
  std::uint32_t mask_;
  std::uint32_t lane_;
};

}  // namespace hippogriff::simulated
