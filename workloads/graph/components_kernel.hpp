// The kernels of connected components: Afforest (Sutton, Ben-Nun and Barak, IPDPS 2018).
#pragma once

#include "workloads/graph/edges_kernel.hpp"

struct CcBegin {
  Vertex* labels;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    labels[vertex] = static_cast<Vertex>(vertex);
  }
};

// Has both vertices in one component: the greater one's root becomes a child of the smaller one's.
HIPPO_DEVICE inline void join(Vertex* labels, Vertex one, Vertex other) {
  Vertex mine = peek(labels[one]);
  Vertex theirs = peek(labels[other]);
  while (mine != theirs) {
    const Vertex above = larger(mine, theirs);
    const Vertex below = smaller(mine, theirs);
    const Vertex parent = peek(labels[above]);
    if (parent == below || (parent == above && replace(labels[above], above, below))) {
      return;
    }
    mine = peek(labels[peek(labels[above])]);
    theirs = peek(labels[below]);
  }
}

// Joins each vertex with the first of its neighbours: most of a large component is found by that.
template <typename Source>
struct CcSample {
  static constexpr unsigned at_once = 32;
  static constexpr std::uint64_t vertices_an_item = 64;
  static constexpr std::uint64_t neighbours_taken = 2;
  template <unsigned Bytes>
  using Buffer = NothingShared;

  Csr graph;
  Source neighbours;
  Vertex* labels;
  Progress* progress;

  [[nodiscard]] std::uint64_t items() const { return parts_of(graph.vertices, vertices_an_item); }

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    const std::uint64_t end = smaller((item + 1) * vertices_an_item, graph.vertices);
    Tally tally;
    for (std::uint64_t vertex = item * vertices_an_item + warp.rank(); vertex < end;
         vertex += Warp::lanes) {
      const Range range = taken(vertex);
      for (std::uint64_t i = range.begin; i < range.end; ++i) {
        const Vertex target = neighbours[i];
        if (target < graph.vertices) {
          join(labels, static_cast<Vertex>(vertex), target);
        } else {
          ++tally.damaged;
        }
      }
    }
    tally.add_to(warp, *progress);
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    const Range all{first * vertices_an_item, smaller(end * vertices_an_item, graph.vertices)};
    const std::uint64_t stop =
        read_ahead(neighbours, threads, all, [&](std::uint64_t vertex) { return taken(vertex); });
    return stop == all.end ? end : larger(stop / vertices_an_item, first + 1);
  }
#endif

 private:
  [[nodiscard]] HIPPO_DEVICE Range taken(std::uint64_t vertex) const {
    const std::uint64_t begin = graph.offsets[vertex];
    return {begin, smaller(begin + neighbours_taken, graph.offsets[vertex + 1])};
  }
};

// The labels of vertices that are spread over all.
struct CcProbe {
  std::uint64_t vertices;
  const Vertex* labels;
  Vertex* probes;

  HIPPO_DEVICE void operator()(std::uint64_t number) const {
    const std::uint64_t scattered = number * 0x9E3779B97F4A7C15ULL;  // 2^64 by the golden ratio
    probes[number] = labels[scattered % vertices];
  }
};

// Joins the vertices that are not in the component with that label with all of their neighbours. A
// label that is no vertex: all vertices.
struct CcOthers {
  Vertex common;
  std::uint64_t vertices;
  Vertex* labels;

  [[nodiscard]] HIPPO_DEVICE bool wants(std::uint64_t vertex) const {
    return peek(labels[vertex]) != common;
  }

  template <typename Source>
  [[nodiscard]] HIPPO_DEVICE static bool begun(std::uint64_t /*vertex*/,
                                               const Source& /*neighbours*/,
                                               const Range& /*part*/,
                                               const Tally& /*tally*/) {
    return false;
  }

  template <typename Warp, typename Source, typename Window>
  HIPPO_DEVICE void list(const Warp& warp,
                         std::uint64_t vertex,
                         const Source& neighbours,
                         Window& window,
                         Range range,
                         Tally& tally) const {
    walk(warp,
         neighbours,
         window,
         range,
         [&](std::uint64_t first, const Vertex* values, std::uint64_t count) {
           each_lane(
               warp, first, values, count, [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                 if (valid && target < vertices) {
                   join(labels, static_cast<Vertex>(vertex), target);
                 } else {
                   tally.damaged += valid ? 1 : 0;
                 }
               });
         });
  }
};

// Every label becomes that of its label, until there is no other.
struct CcJump {
  Vertex* labels;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    Vertex label = peek(labels[vertex]);
    for (Vertex next = peek(labels[label]); next != label; next = peek(labels[label])) {
      label = next;
    }
    lower(labels[vertex], label);
  }
};
