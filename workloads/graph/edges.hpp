// Which edges a generated graph draws: by a hash of their numbers, on a GPU as on the host.
#pragma once

#include "workloads/graph/generate.hpp"
#include "workloads/papers/block.hpp"

#include <hippogriff/array/portable.hpp>

struct Edge {
  std::uint64_t a;
  std::uint64_t b;
};

class Edges {
 public:
  explicit Edges(const GraphWish& wish)
      : wish_(wish), mask_((std::uint64_t{1} << wish.scale) - 1), salt_(hashed(wish.seed)) {}

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t vertices() const { return mask_ + 1; }

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t count() const {
    return vertices() * wish_.edge_factor;
  }

  [[nodiscard]] HIPPO_HOST_DEVICE Edge at(std::uint64_t number) const {
    const std::uint64_t first = hashed(salt_ ^ number);
    if (wish_.kind == GraphKind::uniform) {
      return {first & mask_, hashed(first) & mask_};
    }
    Edge edge{0, 0};
    std::uint64_t bits = first;
    for (unsigned level = 0; level < wish_.scale; ++level) {
      if (level % 2 == 0) {
        bits = hashed(bits + level);
      }
      const auto draw = static_cast<std::uint32_t>(level % 2 == 0 ? bits : bits >> 32U);
      // Quadrants: A up to .57, B to .76, C to .95, D.
      const bool right = (draw >= quadrant_a && draw < quadrant_b) || draw >= quadrant_c;
      edge.a = edge.a << 1U | (draw >= quadrant_b ? 1U : 0U);
      edge.b = edge.b << 1U | (right ? 1U : 0U);
    }
    return {renamed(edge.a), renamed(edge.b)};
  }

 private:
  static constexpr auto quadrant_a = static_cast<std::uint32_t>(0.57 * 0x1p32);
  static constexpr auto quadrant_b = static_cast<std::uint32_t>(0.76 * 0x1p32);
  static constexpr auto quadrant_c = static_cast<std::uint32_t>(0.95 * 0x1p32);

  [[nodiscard]] HIPPO_HOST_DEVICE static std::uint64_t hashed(std::uint64_t number) {
    return hippogriff::ondemand::spread(number + 0x9E3779B97F4A7C15U);
  }

  // A bijection, so that vertices with many edges do not all come first.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t renamed(std::uint64_t vertex) const {
    for (unsigned round = 1; round <= 3; ++round) {
      vertex = (vertex * (hashed(salt_ + round) | 1U) + salt_) & mask_;
      vertex ^= vertex >> (wish_.scale / 2 + 1);
    }
    return vertex;
  }

  GraphWish wish_;
  std::uint64_t mask_;
  std::uint64_t salt_;
};
