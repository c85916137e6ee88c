// An iteration: points are read once, join a cluster and are added to its sum while in shared
// memory; then the blocks' sums become means, always in the same order.
#pragma once

#include "workloads/papers/block.hpp"

struct KmeansShape {
  static constexpr unsigned features_max = 64;
  static constexpr unsigned clusters_max = 16;

  std::size_t points;
  unsigned features;
  unsigned clusters;

  [[nodiscard]] HIPPO_HOST_DEVICE unsigned values() const { return clusters * features; }
};

// Of all blocks together.
struct KmeansTotals {
  unsigned long long changed;
  unsigned long long sizes[KmeansShape::clusters_max];
};

struct KmeansJoin {
  static constexpr unsigned threads = 128;  // a thread is a point, then a feature
  static constexpr std::size_t blocks_max = 1024;

  struct Shared {
    float points[threads * (KmeansShape::features_max + 1)];
    float centres[KmeansShape::clusters_max * KmeansShape::features_max];
    float sums[KmeansShape::clusters_max * threads];  // [cluster][thread]: nobody else's
    int members[threads];
    unsigned sizes[KmeansShape::clusters_max];
    unsigned changed;
  };

  KmeansShape shape;
  const float* points;
  const float* centres;
  int* members;
  bool members_known;  // else every point counts as changed
  float* block_sums;   // [block][cluster][feature]
  KmeansTotals* totals;
  std::size_t block_count;

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t tiles() const {
    return parts_of(shape.points, threads);
  }

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    block.each([&](unsigned thread) { clear(thread, shared); });
    for (std::size_t tile = block.index(); tile < tiles(); tile += block_count) {
      block.each([&](unsigned thread) { load(tile, thread, shared); });
      block.each([&](unsigned thread) { join(tile, thread, shared); });
      block.each([&](unsigned thread) { add(tile, thread, shared); });
    }
    block.each([&](unsigned thread) { store(block.index(), thread, shared); });
  }

 private:
  // Odd, so that points begin in different banks.
  [[nodiscard]] HIPPO_DEVICE unsigned stride() const { return shape.features | 1U; }

  [[nodiscard]] HIPPO_DEVICE unsigned points_in(std::size_t tile) const {
    return static_cast<unsigned>(smaller<std::size_t>(shape.points - tile * threads, threads));
  }

  HIPPO_DEVICE void clear(unsigned thread, Shared& shared) const {
    for (unsigned v = thread; v < shape.values(); v += threads) {
      shared.centres[v] = centres[v];
    }
    for (unsigned c = 0; c < shape.clusters; ++c) {
      shared.sums[c * threads + thread] = 0;
    }
    if (thread < shape.clusters) {
      shared.sizes[thread] = 0;
    }
    if (thread == 0) {
      shared.changed = 0;
    }
  }

  // In the order of memory; point and feature are counted on instead of divided for.
  HIPPO_DEVICE void load(std::size_t tile, unsigned thread, Shared& shared) const {
    const unsigned all = points_in(tile) * shape.features;
    const float* from = points + tile * threads * shape.features;
    const unsigned more_points = threads / shape.features;
    const unsigned more_features = threads % shape.features;
    unsigned point = thread / shape.features;
    unsigned feature = thread % shape.features;
    for (unsigned e = thread; e < all; e += threads) {
      shared.points[point * stride() + feature] = from[e];
      point += more_points;
      feature += more_features;
      if (feature >= shape.features) {
        feature -= shape.features;
        ++point;
      }
    }
  }

  HIPPO_DEVICE void join(std::size_t tile, unsigned thread, Shared& shared) const {
    if (thread >= points_in(tile)) {
      return;
    }
    const unsigned begin = thread * stride();
    const float* point = &shared.points[begin];
    int best = 0;
    float nearest = 0;
    constexpr unsigned at_once = 4;
    for (unsigned first = 0; first < shape.clusters; first += at_once) {
      Few<float, at_once> squares = distances(point, shared, first);
      for (unsigned i = 0; i < at_once && first + i < shape.clusters; ++i) {
        if (first + i == 0 || squares[i] < nearest) {
          nearest = squares[i];
          best = static_cast<int>(first + i);
        }
      }
    }
    int& member = members[tile * threads + thread];
    if (!members_known || member != best) {
      fetch_add(shared.changed, 1U);
    }
    member = best;
    shared.members[thread] = best;
    fetch_add(shared.sizes[best], 1U);
  }

  // Squares of the distances to four centres; the last stands in for those beyond it.
  [[nodiscard]] HIPPO_DEVICE Few<float, 4> distances(const float* point,
                                                     const Shared& shared,
                                                     unsigned first) const {
    Few<float, 4> squares = {};
    const float* centre[4];
    for (unsigned i = 0; i < 4; ++i) {
      const unsigned begin = smaller(first + i, shape.clusters - 1) * shape.features;
      centre[i] = &shared.centres[begin];
    }
    for (unsigned f = 0; f < shape.features; ++f) {
      const float value = point[f];
      for (unsigned i = 0; i < 4; ++i) {
        const float apart = value - centre[i][f];
        squares[i] += apart * apart;
      }
    }
    return squares;
  }

  // A thread owns a feature of every so manyth point.
  HIPPO_DEVICE void add(std::size_t tile, unsigned thread, Shared& shared) const {
    const unsigned groups = threads / shape.features;
    const unsigned feature = thread % shape.features;
    const unsigned group = thread / shape.features;
    if (group >= groups) {
      return;
    }
    const unsigned count = points_in(tile);
    for (unsigned p = group; p < count; p += groups) {
      const auto cluster = static_cast<unsigned>(shared.members[p]);
      shared.sums[cluster * threads + thread] += shared.points[p * stride() + feature];
    }
  }

  HIPPO_DEVICE void store(std::size_t block_index, unsigned thread, Shared& shared) const {
    const unsigned groups = threads / shape.features;
    for (unsigned v = thread; v < shape.values(); v += threads) {
      float sum = 0;
      for (unsigned g = 0; g < groups; ++g) {
        sum += shared.sums[v / shape.features * threads + g * shape.features + v % shape.features];
      }
      block_sums[block_index * shape.values() + v] = sum;
    }
    if (thread < shape.clusters) {
      fetch_add<unsigned long long>(totals->sizes[thread], shared.sizes[thread]);
    }
    if (thread == 0) {
      fetch_add<unsigned long long>(totals->changed, shared.changed);
    }
  }
};

// A block sums 32 of the centres' values over all blocks. A cluster without points stays.
struct KmeansMeans {
  static constexpr unsigned values_a_block = 32;
  static constexpr unsigned slices = 8;
  static constexpr unsigned threads = values_a_block * slices;

  struct Shared {
    double sums[slices][values_a_block];
  };

  KmeansShape shape;
  const float* block_sums;
  std::size_t block_count;
  const KmeansTotals* totals;
  const float* centres;
  float* means;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const auto first = static_cast<unsigned>(block.index()) * values_a_block;
    block.each([&](unsigned thread) {
      const unsigned value = first + thread % values_a_block;
      double sum = 0;
      for (std::size_t b = thread / values_a_block; value < shape.values() && b < block_count;
           b += slices) {
        sum += block_sums[b * shape.values() + value];
      }
      shared.sums[thread / values_a_block][thread % values_a_block] = sum;
    });
    block.each([&](unsigned thread) {
      const unsigned value = first + thread;
      if (thread >= values_a_block || value >= shape.values()) {
        return;
      }
      double sum = 0;
      for (const auto& slice : shared.sums) {
        sum += slice[thread];
      }
      const unsigned long long size = totals->sizes[value / shape.features];
      means[value] =
          size > 0 ? static_cast<float>(sum / static_cast<double>(size)) : centres[value];
    });
  }
};
