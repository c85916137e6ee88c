// The mesh that `generate` writes: a box of cubes, each of six tetrahedra around its diagonal
// (Freudenthal, 1942), with some of the cubes' sides made walls. Nothing of it is in memory.
#pragma once

#include "workloads/cfd/cfd_kernel.hpp"
#include "workloads/papers/file.hpp"

#include <array>
#include <cstdint>

class CfdBox {
 public:
  CfdBox(std::uint64_t cubes, const RandomField& random) : cubes_(cubes), random_(random) {}

  [[nodiscard]] std::uint64_t elements() const { return 6 * cubes_ * cubes_ * cubes_; }

  [[nodiscard]] float volume(std::uint64_t element) const;

  // Face `face` is opposite to corner `face`.
  [[nodiscard]] int neighbour(std::uint64_t element, unsigned face) const;

  // Component `axis` of the face's area times its normal outwards.
  [[nodiscard]] float normal(std::uint64_t element, unsigned face, unsigned axis) const;

 private:
  using Cube = std::array<std::uint64_t, 3>;

  [[nodiscard]] Cube cube_of(std::uint64_t element) const;
  [[nodiscard]] std::uint64_t element_of(const Cube& cube, unsigned tetrahedron) const;
  [[nodiscard]] float width(unsigned axis, std::uint64_t place) const;
  [[nodiscard]] int across(Cube cube, unsigned tetrahedron, unsigned axis, bool forwards) const;

  std::uint64_t cubes_;  // along each axis
  RandomField random_;
};
