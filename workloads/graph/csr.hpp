// A graph as kernels see it: where each vertex' list of neighbours begins; and what they count.
#pragma once

#include "workloads/arrays/warp.hpp"

#include <cstdint>

using Vertex = std::uint32_t;

// How many neighbours a warp takes at a time: a vertex may have millions.
inline constexpr std::uint64_t neighbours_an_item = 2048;

// Offsets have been checked: they begin with 0, never fall, and end with the number of edges.
struct Csr {
  std::uint64_t vertices;
  std::uint64_t edges;
  const std::uint64_t* offsets;
  std::uint64_t first;  // the edges that kernels go through are from this one on
  std::uint64_t stop;   // up to this one

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t degree(std::uint64_t vertex) const {
    return offsets[vertex + 1] - offsets[vertex];
  }

  // The vertex in whose list neighbour number `edge` stands.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t owner_of(std::uint64_t edge) const {
    std::uint64_t low = 0;
    for (std::uint64_t high = vertices; high - low > 1;) {
      const std::uint64_t middle = low + (high - low) / 2;
      (offsets[middle] <= edge ? low : high) = middle;
    }
    return low;
  }

  // The vertex so many after that one, or, where it and more that follow have no neighbours, the
  // next one that has: there may be millions without. No edge is behind the last vertex.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t after(std::uint64_t vertex,
                                                      std::uint64_t step) const {
    constexpr std::uint64_t many = 32;
    const std::uint64_t next = vertex + step;
    if (next + many < vertices && offsets[next] == offsets[next + many] && offsets[next] < edges) {
      return owner_of(offsets[next]);
    }
    return next;
  }

  // These edges by items, in order or backwards: who goes through them again and again has
  // then read last what comes first.
  [[nodiscard]] HIPPO_HOST_DEVICE Range item(std::uint64_t number, bool backwards) const {
    const std::uint64_t begin =
        first + (backwards ? items() - 1 - number : number) * neighbours_an_item;
    const std::uint64_t end = begin + neighbours_an_item;
    return {begin, end < stop ? end : stop};
  }

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t items() const {
    return parts_of(stop - first, neighbours_an_item);
  }
};

// Counted by all warps together.
struct Progress {
  unsigned long long found;    // entries of the next queue, or vertices
  unsigned long long edges;    // in the lists of what was found
  unsigned long long looked;   // at neighbours, from below
  unsigned long long damaged;  // neighbours that are no vertices
};

// What a lane counted.
struct Tally {
  unsigned found = 0;
  unsigned long long edges = 0;
  unsigned looked = 0;
  unsigned damaged = 0;

  // All lanes come.
  template <typename Warp>
  HIPPO_DEVICE void add_to(const Warp& warp, Progress& progress) const {
    add(warp, progress.found, found);
    add(warp, progress.edges, edges);
    add(warp, progress.looked, looked);
    add(warp, progress.damaged, damaged);
  }

 private:
  template <typename Warp>
  HIPPO_DEVICE static void add(const Warp& warp, unsigned long long& to, unsigned long long mine) {
    if (!warp.any(mine != 0)) {
      return;
    }
    const unsigned long long sum = warp.sum(mine);
    if (warp.rank() == 0) {
      fetch_add(to, sum);
    }
  }
};
