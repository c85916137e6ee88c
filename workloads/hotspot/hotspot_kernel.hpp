// Several steps on a patch that stays in shared memory: each spoils one ring of its rim.
#pragma once

#include "workloads/papers/block.hpp"

// One step: t' = t + p power + c (the four neighbours - 4 t) + z (ambient - t). A neighbour that
// the chip has not is the cell itself. The coefficients are those of a chip 0.5 mm thick (silicon:
// 100 W/(m K), 1.75e6 J/(m^3 K), half of which counts) and a step short enough for 3 MW/m^2 to heat
// by 1/1000 K, or a part of it.
struct HotspotPhysics {
  float per_power;
  float per_neighbour;
  float per_ambient;
  float ambient;
};

// A block reads a patch with a rim of `steps_max` cells, makes up to so many steps, and writes what
// is inside the rim. A thread owns a piece of a column.
struct HotspotSteps {
  static constexpr unsigned threads = 256;
  static constexpr unsigned resident = 3;  // as many as shared memory has room for
  static constexpr unsigned steps_max = 4;
  static constexpr unsigned patch = 64;
  static constexpr unsigned inside = patch - 2 * steps_max;
  static constexpr unsigned cells_a_thread = patch * patch / threads;

  struct Shared {
    float cells[2][patch][patch];
    float heating[patch][patch];  // by the cells' power, a step
  };

  const float* from;
  const float* power;
  float* to;
  std::size_t rows;
  unsigned steps;
  HotspotPhysics physics;

  [[nodiscard]] std::size_t blocks() const {
    return parts_of(rows, inside) * parts_of(rows, inside);
  }

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const std::size_t blocks_a_row = parts_of(rows, inside);
    constexpr int rim = steps_max;
    const Place place{static_cast<int>(block.index() / blocks_a_row * inside) - rim,
                      static_cast<int>(block.index() % blocks_a_row * inside) - rim};
    block.each([&](unsigned thread) { load(place, thread, shared); });
    for (unsigned step = 0; step < steps; ++step) {
      block.each([&](unsigned thread) { make_step(place, thread, shared, step % 2); });
    }
    block.each([&](unsigned thread) { store(place, thread, shared.cells[steps % 2]); });
  }

 private:
  using Cells = float[patch][patch];

  // Of the patch's first cell; less than 0 in its rim.
  struct Place {
    int row;
    int column;
  };

  [[nodiscard]] HIPPO_DEVICE static unsigned first_row(unsigned thread) {
    return thread / patch * cells_a_thread;
  }

  [[nodiscard]] HIPPO_DEVICE bool on_chip(int row, int column) const {
    const int n = static_cast<int>(rows);
    return row >= 0 && row < n && column >= 0 && column < n;
  }

  [[nodiscard]] HIPPO_DEVICE std::size_t cell(int row, int column) const {
    return static_cast<std::size_t>(row) * rows + static_cast<std::size_t>(column);
  }

  HIPPO_DEVICE void load(Place place, unsigned thread, Shared& shared) const {
    const unsigned x = thread % patch;
    for (unsigned i = 0; i < cells_a_thread; ++i) {
      const unsigned y = first_row(thread) + i;
      const int row = place.row + static_cast<int>(y);
      const int column = place.column + static_cast<int>(x);
      const bool there = on_chip(row, column);
      const std::size_t at = there ? cell(row, column) : 0;
      shared.cells[0][y][x] = there ? from[at] : 0.0F;
      shared.heating[y][x] = there ? physics.per_power * power[at] : 0.0F;
    }
  }

  HIPPO_DEVICE void make_step(Place place, unsigned thread, Shared& shared, unsigned now) const {
    const Cells& old = shared.cells[now];
    Cells& next = shared.cells[1 - now];
    const unsigned x = thread % patch;
    const unsigned top = first_row(thread);
    const int last = static_cast<int>(rows) - 1;
    const int column = place.column + static_cast<int>(x);
    const bool has_left = x > 0 && column > 0;
    const bool has_right = x + 1 < patch && column < last;
    float above = top > 0 ? old[top - 1][x] : 0.0F;
    float here = old[top][x];
    for (unsigned i = 0; i < cells_a_thread; ++i) {
      const unsigned y = top + i;
      const int row = place.row + static_cast<int>(y);
      const bool has_below = y + 1 < patch;
      const float below = has_below ? old[y + 1][x] : here;
      const float up = row > 0 ? above : here;
      const float down = row < last ? below : here;
      const float left = has_left ? old[y][x - 1] : here;
      const float right = has_right ? old[y][x + 1] : here;
      const float around = (up + down) + (left + right) - 4.0F * here;
      next[y][x] = here + shared.heating[y][x] + physics.per_neighbour * around +
                   physics.per_ambient * (physics.ambient - here);
      above = here;
      here = below;
    }
  }

  HIPPO_DEVICE void store(Place place, unsigned thread, const Cells& cells) const {
    const unsigned x = thread % patch;
    const int column = place.column + static_cast<int>(x);
    for (unsigned i = 0; i < cells_a_thread; ++i) {
      const unsigned y = first_row(thread) + i;
      const int row = place.row + static_cast<int>(y);
      const bool mine =
          x >= steps_max && x < patch - steps_max && y >= steps_max && y < patch - steps_max;
      if (mine && on_chip(row, column)) {
        to[cell(row, column)] = cells[y][x];
      }
    }
  }
};
