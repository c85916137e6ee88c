// PageRank's kernels, by pulling: the edges lead both ways.
#pragma once

#include "workloads/graph/edges_kernel.hpp"

struct PageRankState {
  const std::uint64_t* offsets;
  double* ranks;
  double* shares;  // what a vertex gives each of its neighbours
  double* sums;    // of what it gets
  double base;     // of every rank
  double damping;

  // Takes a rank over, and begins the next sum.
  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    const double rank = base + damping * sums[vertex];
    const auto degree = static_cast<double>(offsets[vertex + 1] - offsets[vertex]);
    ranks[vertex] = rank;
    shares[vertex] = degree > 0 ? rank / degree : 0;
    sums[vertex] = 0;
  }
};

struct PageRankBegin {
  PageRankState state;
  double rank;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    state.sums[vertex] = (rank - state.base) / state.damping;
    state(vertex);
  }
};

struct PageRankPull {
  std::uint64_t vertices;
  const double* shares;
  double* sums;

  template <typename Warp>
  HIPPO_DEVICE unsigned list(const Warp& warp,
                             std::uint64_t vertex,
                             Range range,
                             const Vertex* values) const {
    unsigned damaged = 0;
    double sum = 0;
    each_lane(warp,
              range.begin,
              values,
              range.end - range.begin,
              [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                if (valid && target < vertices) {
                  sum += shares[target];
                } else {
                  damaged += valid ? 1 : 0;
                }
              });
    sum = warp.sum(sum);
    if (warp.rank() == 0) {
      add_to(sums[vertex], sum);
    }
    return damaged;
  }
};
