// Elimination by panels of 64 columns: the tile on the diagonal, the tiles beside it, the rest;
// then the solution, a panel at a time from the last.
#pragma once

#include "workloads/papers/block.hpp"

// A matrix and its right side, which are both changed in place.
struct GaussianSystem {
  static constexpr unsigned panel = 64;

  std::size_t rows;
  float* matrix;
  float* right;

  [[nodiscard]] HIPPO_DEVICE float* at(std::size_t row, std::size_t column) const {
    return matrix + row * rows + column;
  }

  [[nodiscard]] HIPPO_DEVICE bool has(std::size_t row, std::size_t column) const {
    return row < rows && column < rows;
  }
};

// A tile in shared memory, by 256 threads. One more column: no two rows begin in the same bank.
struct GaussianTile {
  static constexpr unsigned size = GaussianSystem::panel;
  static constexpr unsigned threads = 256;

  float cells[size][size + 1];

  // With the identity beyond the matrix, so that it stays as it is.
  HIPPO_DEVICE void load(unsigned thread,
                         const GaussianSystem& system,
                         std::size_t row,
                         std::size_t column) {
    const unsigned x = thread % size;
    for (unsigned y = thread / size; y < size; y += threads / size) {
      const float beyond = row + y == column + x ? 1.0F : 0.0F;
      cells[y][x] = system.has(row + y, column + x) ? *system.at(row + y, column + x) : beyond;
    }
  }

  HIPPO_DEVICE void store(unsigned thread,
                          const GaussianSystem& system,
                          std::size_t row,
                          std::size_t column) const {
    const unsigned x = thread % size;
    for (unsigned y = thread / size; y < size; y += threads / size) {
      if (system.has(row + y, column + x)) {
        *system.at(row + y, column + x) = cells[y][x];
      }
    }
  }
};

// The tile at (first, first) and the right side's part, in shared memory.
struct GaussianCorner {
  GaussianTile tile;
  float right[GaussianTile::size];

  HIPPO_DEVICE void load(unsigned thread, const GaussianSystem& system, std::size_t first) {
    tile.load(thread, system, first, first);
    if (thread < GaussianTile::size) {
      right[thread] = first + thread < system.rows ? system.right[first + thread] : 0.0F;
    }
  }

  HIPPO_DEVICE void store_right(unsigned thread,
                                const GaussianSystem& system,
                                std::size_t first) const {
    if (thread < GaussianTile::size && first + thread < system.rows) {
      system.right[first + thread] = right[thread];
    }
  }
};

// Factors the tile at (first, first) and the right side's part. One block.
struct GaussianDiagonal {
  static constexpr unsigned threads = GaussianTile::threads;

  using Shared = GaussianCorner;

  GaussianSystem system;
  std::size_t first;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    block.each([&](unsigned thread) { shared.load(thread, system, first); });
    for (unsigned p = 0; p + 1 < GaussianTile::size; ++p) {
      block.each([&](unsigned thread) {
        if (thread < GaussianTile::size && thread > p) {
          shared.tile.cells[thread][p] /= shared.tile.cells[p][p];
        }
      });
      block.each([&](unsigned thread) { eliminate(thread, shared, p); });
    }
    block.each([&](unsigned thread) {
      shared.tile.store(thread, system, first, first);
      shared.store_right(thread, system, first);
    });
  }

 private:
  // Below row p; in column p itself it is the right side's turn.
  HIPPO_DEVICE static void eliminate(unsigned thread, Shared& shared, unsigned p) {
    auto& cells = shared.tile.cells;
    const unsigned x = thread % GaussianTile::size;
    const unsigned step = threads / GaussianTile::size;
    for (unsigned y = thread / GaussianTile::size; y < GaussianTile::size; y += step) {
      if (y > p && x > p) {
        cells[y][x] -= cells[y][p] * cells[p][x];
      } else if (y > p && x == p) {
        shared.right[y] -= cells[y][p] * shared.right[p];
      }
    }
  }
};

// The tiles right of the diagonal one, then those below, a block each. Those below also eliminate
// in the right side.
struct GaussianBeside {
  static constexpr unsigned threads = GaussianTile::threads;

  struct Shared {
    GaussianTile diagonal;
    GaussianTile side;
  };

  GaussianSystem system;
  std::size_t first;

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t tiles() const {
    return parts_of(system.rows - first, GaussianTile::size) - 1;
  }

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const bool below = block.index() >= tiles();
    const std::size_t tile = below ? block.index() - tiles() : block.index();
    const std::size_t away = first + (tile + 1) * GaussianTile::size;
    const std::size_t row = below ? away : first;
    const std::size_t column = below ? first : away;
    block.each([&](unsigned thread) {
      shared.diagonal.load(thread, system, first, first);
      shared.side.load(thread, system, row, column);
    });
    for (unsigned p = 0; p < GaussianTile::size; ++p) {
      block.each([&](unsigned thread) {
        below ? divide_rows(thread, shared, p) : eliminate_rows(thread, shared, p);
      });
    }
    block.each([&](unsigned thread) {
      if (below) {
        finish_rows(thread, shared, row);
      }
    });
    block.each([&](unsigned thread) { shared.side.store(thread, system, row, column); });
  }

 private:
  static constexpr unsigned step = threads / GaussianTile::size;

  // Right: a row of U is done when all above it are taken off.
  HIPPO_DEVICE static void eliminate_rows(unsigned thread, Shared& shared, unsigned p) {
    const unsigned x = thread % GaussianTile::size;
    for (unsigned y = thread / GaussianTile::size; y < GaussianTile::size; y += step) {
      if (y > p) {
        shared.side.cells[y][x] -= shared.diagonal.cells[y][p] * shared.side.cells[p][x];
      }
    }
  }

  // Below: column p is not divided here, because others still read it.
  HIPPO_DEVICE static void divide_rows(unsigned thread, Shared& shared, unsigned p) {
    const unsigned x = thread % GaussianTile::size;
    if (x <= p) {
      return;
    }
    const float share = shared.diagonal.cells[p][x] / shared.diagonal.cells[p][p];
    for (unsigned y = thread / GaussianTile::size; y < GaussianTile::size; y += step) {
      shared.side.cells[y][x] -= shared.side.cells[y][p] * share;
    }
  }

  // A thread owns a row.
  HIPPO_DEVICE void finish_rows(unsigned thread, Shared& shared, std::size_t row) const {
    if (thread >= GaussianTile::size || row + thread >= system.rows) {
      return;
    }
    float sum = 0;
    for (unsigned p = 0; p < GaussianTile::size; ++p) {
      const float factor = shared.side.cells[thread][p] / shared.diagonal.cells[p][p];
      shared.side.cells[thread][p] = factor;
      sum += factor * system.right[first + p];
    }
    system.right[row + thread] -= sum;
  }
};

// Takes the panel's L times its U off all that is right of and below it. A block owns 128 x 128
// cells, a thread 8 x 8 of them: 8 rows, and every 16th column.
struct GaussianRest {
  static constexpr unsigned threads = 256;
  static constexpr unsigned patch = 128;
  static constexpr unsigned depth = 16;  // columns of the panel in shared memory at a time
  static constexpr unsigned own = 8;

  struct Shared {
    alignas(16) float lower[depth][patch + 4];
    alignas(16) float upper[depth][patch];
  };

  GaussianSystem system;
  std::size_t first;

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t patches() const {
    return parts_of(system.rows - first - GaussianSystem::panel, patch);
  }

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    typename Block::template PerThread<Sums> sums;
    const std::size_t rest = first + GaussianSystem::panel;
    const std::size_t row = rest + block.index() / patches() * patch;
    const std::size_t column = rest + block.index() % patches() * patch;
    block.each([&](unsigned thread) { sums[thread] = Sums{}; });
    for (unsigned p = 0; p < GaussianSystem::panel; p += depth) {
      block.each([&](unsigned thread) { load(thread, shared, row, column, first + p); });
      block.each([&](unsigned thread) { multiply(thread, shared, sums[thread]); });
    }
    block.each([&](unsigned thread) {
      const std::size_t own_row = row + std::size_t{thread / across} * own;
      subtract(own_row, column + thread % across, sums[thread]);
    });
  }

 private:
  using Sums = Few<float, own * own>;
  static constexpr unsigned across = patch / own;

  HIPPO_DEVICE void load(
      unsigned thread, Shared& shared, std::size_t row, std::size_t column, std::size_t p) const {
    for (unsigned e = thread; e < patch * depth; e += threads) {
      const unsigned y = e / depth;
      const unsigned z = e % depth;
      shared.lower[z][y] = row + y < system.rows ? *system.at(row + y, p + z) : 0.0F;
    }
    for (unsigned e = thread; e < patch * depth; e += threads) {
      const unsigned z = e / patch;
      const unsigned x = e % patch;
      shared.upper[z][x] = column + x < system.rows ? *system.at(p + z, column + x) : 0.0F;
    }
  }

  HIPPO_DEVICE static void multiply(unsigned thread, const Shared& shared, Sums& sums) {
    const unsigned x = thread % across;
    const unsigned y = thread / across * own;
    for (unsigned z = 0; z < depth; ++z) {
      Few<float, own> lower = {};
      Few<float, own> upper = {};
      for (unsigned i = 0; i < own; ++i) {
        lower[i] = shared.lower[z][y + i];
        upper[i] = shared.upper[z][x + i * across];
      }
      for (unsigned i = 0; i < own * own; ++i) {
        sums[i] += lower[i / own] * upper[i % own];
      }
    }
  }

  HIPPO_DEVICE void subtract(std::size_t row, std::size_t column, Sums& sums) const {
    for (unsigned i = 0; i < own * own; ++i) {
      const std::size_t to_row = row + i / own;
      const std::size_t to_column = column + std::size_t{i % own} * across;
      if (system.has(to_row, to_column)) {
        *system.at(to_row, to_column) -= sums[i];
      }
    }
  }
};

// The solution's part of a panel, in place of the right side. One block.
struct GaussianSolve {
  static constexpr unsigned threads = GaussianTile::threads;

  using Shared = GaussianCorner;

  GaussianSystem system;
  std::size_t first;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    block.each([&](unsigned thread) { shared.load(thread, system, first); });
    for (unsigned p = GaussianTile::size; p-- > 0;) {
      const float value = block.read(shared.right[p]) / shared.tile.cells[p][p];
      block.each([&](unsigned thread) {
        if (thread < p) {
          shared.right[thread] -= shared.tile.cells[thread][p] * value;
        } else if (thread == p) {
          shared.right[thread] = value;
        }
      });
    }
    block.each([&](unsigned thread) { shared.store_right(thread, system, first); });
  }
};

// Takes a panel of the solution off the right side above it, a block for 64 rows.
struct GaussianAbove {
  static constexpr unsigned threads = GaussianTile::threads;

  struct Shared {
    GaussianTile tile;
  };

  GaussianSystem system;
  std::size_t first;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const std::size_t row = block.index() * GaussianTile::size;
    block.each([&](unsigned thread) { shared.tile.load(thread, system, row, first); });
    block.each([&](unsigned thread) {
      if (thread >= GaussianTile::size) {
        return;
      }
      float sum = 0;
      for (unsigned p = 0; p < GaussianTile::size && first + p < system.rows; ++p) {
        sum += shared.tile.cells[thread][p] * system.right[first + p];
      }
      system.right[row + thread] -= sum;
    });
  }
};
