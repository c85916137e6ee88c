// A level of the transform: a tile of a plane in shared memory, rows and columns lifted there.
#pragma once

#include "workloads/papers/block.hpp"

constexpr unsigned dwt_colours = 3;

// The first level's input: pixels, of which a block takes one colour.
struct DwtPixels {
  const unsigned char* bytes;
  std::size_t width;

  HIPPO_DEVICE int operator()(unsigned colour, std::size_t row, std::size_t column) const {
    return static_cast<int>(bytes[(row * width + column) * dwt_colours + colour]) - 128;
  }
};

// A later level's: low frequencies of the one before.
struct DwtPlanes {
  const short* cells;
  std::size_t width;
  std::size_t height;

  HIPPO_DEVICE int operator()(unsigned colour, std::size_t row, std::size_t column) const {
    return cells[(colour * height + row) * width + column];
  }
};

// Where a plane's cells go.
struct DwtTarget {
  short* cells;
  std::size_t width;   // from a row to the next
  std::size_t height;  // rows from a plane to the next

  HIPPO_DEVICE void put(unsigned colour, std::size_t row, std::size_t column, short value) const {
    cells[(colour * height + row) * width + column] = value;
  }
};

// JPEG 2000's reversible transform: rows first, halves and quarters downwards.
struct DwtDownwards {
  static constexpr bool rows_first = true;

  HIPPO_DEVICE static int half(int sum) { return sum >> 1; }

  HIPPO_DEVICE static int quarter(int sum) { return sum >> 2; }
};

// Rodinia's: columns first, halves and quarters towards zero.
struct DwtTowardsZero {
  static constexpr bool rows_first = false;

  HIPPO_DEVICE static int half(int sum) { return sum / 2; }

  HIPPO_DEVICE static int quarter(int sum) { return sum / 4; }
};

// A block makes 64 x 64 coefficients of each of the four kinds from 128 x 128 cells, two more
// before them and one after.
template <typename Source, typename Rule>
struct DwtLevel {
  static constexpr unsigned threads = 256;
  static constexpr unsigned own = 64;
  static constexpr unsigned before = 2;
  static constexpr unsigned side = before + 2 * own + 1;

  struct Shared {
    short cells[side][side];
  };

  Source source;
  std::size_t width;  // of the level, in cells
  std::size_t height;
  DwtTarget low;  // the next level's input, or the result
  DwtTarget result;

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t low_width() const { return (width + 1) / 2; }

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t low_height() const { return (height + 1) / 2; }

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t tiles() const {
    return parts_of(low_width(), own) * parts_of(low_height(), own);
  }

  [[nodiscard]] std::size_t blocks() const { return tiles() * dwt_colours; }

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const std::size_t tile = block.index() % tiles();
    const std::size_t tiles_a_row = parts_of(low_width(), own);
    const Place place{static_cast<unsigned>(block.index() / tiles()),
                      tile / tiles_a_row * own,
                      tile % tiles_a_row * own};
    block.each([&](unsigned thread) { load(place, thread, shared); });
    if constexpr (Rule::rows_first) {
      block.each([&](unsigned thread) { lift_rows(thread, shared, Step::predict); });
      block.each([&](unsigned thread) { lift_rows(thread, shared, Step::update); });
    }
    block.each([&](unsigned thread) { lift_columns(thread, shared, Step::predict); });
    block.each([&](unsigned thread) { lift_columns(thread, shared, Step::update); });
    if constexpr (!Rule::rows_first) {
      block.each([&](unsigned thread) { lift_rows(thread, shared, Step::predict); });
      block.each([&](unsigned thread) { lift_rows(thread, shared, Step::update); });
    }
    block.each([&](unsigned thread) { store(place, thread, shared); });
  }

 private:
  enum class Step { predict, update };

  // The first coefficient of the block, of its kind's plane.
  struct Place {
    unsigned colour;
    std::size_t row;
    std::size_t column;
  };

  // Beyond an end the cells come again in reverse. What is further out than this needs is clamped.
  [[nodiscard]] HIPPO_DEVICE static std::size_t mirrored(long at, std::size_t size) {
    const long last = static_cast<long>(size) - 1;
    const long inside = at < 0 ? -at : at;
    const long back = inside > last ? 2 * last - inside : inside;
    return static_cast<std::size_t>(smaller(larger(back, 0L), last));
  }

  HIPPO_DEVICE void load(const Place& place, unsigned thread, Shared& shared) const {
    for (unsigned i = thread; i < side * side; i += threads) {
      const unsigned y = i / side;
      const unsigned x = i % side;
      const long row = 2 * static_cast<long>(place.row) + y - before;
      const long column = 2 * static_cast<long>(place.column) + x - before;
      shared.cells[y][x] =
          static_cast<short>(source(place.colour, mirrored(row, height), mirrored(column, width)));
    }
  }

  // Odd cells become high frequencies (what their neighbours do not predict), even ones low.
  [[nodiscard]] HIPPO_DEVICE static short lifted(Step step, int left, int here, int right) {
    return static_cast<short>(step == Step::predict ? here - Rule::half(left + right)
                                                    : here + Rule::quarter(left + right + 2));
  }

  // What is lifted first needs the rim, too; then only what is written is of use.
  static constexpr unsigned rows_lifted = Rule::rows_first ? side : 2 * own;
  static constexpr unsigned first_row = Rule::rows_first ? 0 : before;
  static constexpr unsigned columns_lifted = Rule::rows_first ? 2 * own : side;
  static constexpr unsigned first_column = Rule::rows_first ? before : 0;

  HIPPO_DEVICE static void lift_rows(unsigned thread, Shared& shared, Step step) {
    const unsigned first = step == Step::predict ? 1 : 2;
    const unsigned count = step == Step::predict ? own + 1 : own;
    for (unsigned i = thread; i < count * rows_lifted; i += threads) {
      short* cell = &shared.cells[first_row + i / count][first + i % count * 2];
      *cell = lifted(step, cell[-1], *cell, cell[1]);
    }
  }

  HIPPO_DEVICE static void lift_columns(unsigned thread, Shared& shared, Step step) {
    const unsigned first = step == Step::predict ? 1 : 2;
    const unsigned count = step == Step::predict ? own + 1 : own;
    for (unsigned i = thread; i < count * columns_lifted; i += threads) {
      const unsigned x = first_column + i % columns_lifted;
      const unsigned y = first + i / columns_lifted * 2;
      shared.cells[y][x] =
          lifted(step, shared.cells[y - 1][x], shared.cells[y][x], shared.cells[y + 1][x]);
    }
  }

  HIPPO_DEVICE void store(const Place& place, unsigned thread, const Shared& shared) const {
    for (unsigned i = thread; i < own * own; i += threads) {
      const unsigned x = i % own;
      const unsigned y = i / own;
      const std::size_t row = place.row + y;
      const std::size_t column = place.column + x;
      const bool low_row = row < low_height();
      const bool low_column = column < low_width();
      const bool high_row = row < height / 2;
      const bool high_column = column < width / 2;
      const short* even = &shared.cells[before + 2 * y][before + 2 * x];
      const short* odd = even + side;
      if (low_row && low_column) {
        low.put(place.colour, row, column, even[0]);
      }
      if (low_row && high_column) {
        result.put(place.colour, row, low_width() + column, even[1]);
      }
      if (high_row && low_column) {
        result.put(place.colour, low_height() + row, column, odd[0]);
      }
      if (high_row && high_column) {
        result.put(place.colour, low_height() + row, low_width() + column, odd[1]);
      }
    }
  }
};
