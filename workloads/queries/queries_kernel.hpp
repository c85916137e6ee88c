// The kernels of `queries`: one column is scanned, the others are read where a row is wanted.
#pragma once

#include "workloads/arrays/warp.hpp"

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

inline constexpr std::uint64_t rows_an_item = 2048;
inline constexpr unsigned dependent_max = 5;

struct Wanted {
  double distance;
  std::uint64_t row;
};

struct Findings {
  unsigned long long rows;  // that are listed, or would be if there were room
  double miles;             // of all that are wanted
  double dollars_a_mile;
};

// Adds the trips of `part` that are of at least so many miles to a list, as far as there is room.
template <typename Source>
struct ScanDistances {
  static constexpr unsigned at_once = 16;
  template <unsigned Bytes>
  using Buffer = Window<double, Bytes>;

  Source distances;
  Range part;
  double miles = 0;
  Wanted* wanted = nullptr;
  std::uint64_t room = 0;
  Findings* findings = nullptr;

  [[nodiscard]] std::uint64_t items() const {
    return parts_of(part.end - part.begin, rows_an_item);
  }

  [[nodiscard]] HIPPO_HOST_DEVICE Range rows(std::uint64_t item) const {
    const std::uint64_t begin = part.begin + item * rows_an_item;
    const std::uint64_t end = begin + rows_an_item;
    return {begin, end < part.end ? end : part.end};
  }

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    double sum = 0;
    walk(warp,
         distances,
         window,
         rows(item),
         [&](std::uint64_t first, const double* values, std::uint64_t count) {
           each_lane(
               warp, first, values, count, [&](double distance, std::uint64_t row, bool valid) {
                 const bool mine = valid && distance >= miles;
                 sum += mine ? distance : 0;
                 const unsigned long long place = warp.reserve(findings->rows, mine ? 1 : 0);
                 if (mine && place < room) {
                   wanted[place] = {distance, row};
                 }
               });
         });
    sum = warp.sum(sum);
    if (sum > 0 && warp.rank() == 0) {
      add_to(findings->miles, sum);
    }
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    return read_ahead(
        distances, threads, {first, end}, [&](std::uint64_t item) { return rows(item); });
  }
#endif
};

// All of a query, for rows whose columns are in memory. A lane has a row.
struct AskTile {
  static constexpr unsigned at_once = 16;
  template <unsigned Bytes>
  using Buffer = NothingShared;

  const double* columns[1 + dependent_max];
  unsigned column_count;
  std::uint64_t rows;
  double miles;
  Findings* findings;

  [[nodiscard]] std::uint64_t items() const { return parts_of(rows, rows_an_item); }

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    unsigned found = 0;
    double sum = 0;
    double made = 0;
    const std::uint64_t end = smaller((item + 1) * rows_an_item, rows);
    for (std::uint64_t row = item * rows_an_item + warp.rank(); row < end; row += Warp::lanes) {
      const double distance = columns[0][row];
      if (distance >= miles) {
        ++found;
        sum += distance;
        made += dollars(row) / distance;
      }
    }
    if (!warp.any(found != 0)) {
      return;
    }
    found = warp.sum(found);
    sum = warp.sum(sum);
    made = warp.sum(made);
    if (warp.rank() == 0) {
      fetch_add(findings->rows, 1ULL * found);
      add_to(findings->miles, sum);
      add_to(findings->dollars_a_mile, made);
    }
  }

 private:
  [[nodiscard]] HIPPO_DEVICE double dollars(std::uint64_t row) const {
    double left = column_count > 1 ? columns[1][row] : 0;
    for (unsigned column = 2; column < column_count; ++column) {
      left -= columns[column][row];
    }
    return left;
  }
};

// What the driver makes a mile on each of these trips: the total, less surcharges, hail fee, tolls
// and taxes as far as the query has them. A lane has a trip.
template <typename Source>
struct DollarsAMile {
  static constexpr unsigned at_once = 2;
  static constexpr std::uint64_t rows_a_warp = 32;
  template <unsigned Bytes>
  using Buffer = NothingShared;

  Source columns[dependent_max];
  unsigned column_count = 0;
  const Wanted* wanted = nullptr;
  std::uint64_t wanted_count = 0;
  Findings* findings = nullptr;

  [[nodiscard]] std::uint64_t items() const { return parts_of(wanted_count, rows_a_warp); }

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    double sum = 0;
    const std::uint64_t end = smaller((item + 1) * rows_a_warp, wanted_count);
    for (std::uint64_t i = item * rows_a_warp + warp.rank(); i < end; i += Warp::lanes) {
      const Wanted trip = wanted[i];
      double dollars = columns[0][trip.row];
      for (unsigned column = 1; column < column_count; ++column) {
        dollars -= columns[column][trip.row];
      }
      sum += dollars / trip.distance;
    }
    sum = warp.sum(sum);
    if (warp.rank() == 0) {
      add_to(findings->dollars_a_mile, sum);
    }
  }

#ifndef __CUDACC__
  // The rows' elements, of each column in turn.
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    const Range all{first * rows_a_warp, smaller(end * rows_a_warp, wanted_count)};
    std::uint64_t done = all.end;
    for (unsigned column = 0; column < column_count; ++column) {
      done = smaller(done, read_ahead(columns[column], threads, all, [&](std::uint64_t i) {
                       return Range{wanted[i].row, wanted[i].row + 1};
                     }));
    }
    return done == all.end ? end : larger(first + 1, done / rows_a_warp);
  }
#endif
};
