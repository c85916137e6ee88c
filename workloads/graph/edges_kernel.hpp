// What goes through many edges, as many to each warp, whosever they are. Lists of neighbours come
// from an array in storage, or from memory; offsets and what is known of vertices are in the
// device's memory.
#pragma once

#include "workloads/graph/csr.hpp"

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

// Calls act(vertex, index, count) for the lists, or parts of lists, that neighbours from `first` on
// belong to. `vertex` is the owner of the first one, and then of the last.
template <typename Act>
HIPPO_DEVICE void each_list(const Csr& graph,
                            std::uint64_t& vertex,
                            std::uint64_t first,
                            std::uint64_t count,
                            const Act& act) {
  for (std::uint64_t done = 0; done < count;) {
    while (graph.offsets[vertex + 1] <= first + done) {
      vertex = graph.after(vertex, 1);
    }
    const std::uint64_t stop = smaller(graph.offsets[vertex + 1], first + count) - first;
    act(vertex, done, stop - done);
    done = stop;
  }
}

// What goes through all edges, or those of a tile. `Each` has list(warp, vertex, range, values),
// which returns how many neighbours were no vertices.
template <typename Source, typename Each>
struct EveryEdge {
  static constexpr unsigned at_once = 32;
  template <unsigned Bytes>
  using Buffer = Window<Vertex, Bytes>;

  Csr graph;
  Source neighbours;
  Each each;
  bool backwards;
  Progress* progress;

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    const Range range = graph.item(item, backwards);
    std::uint64_t vertex = graph.owner_of(range.begin);
    Tally tally;
    walk(warp,
         neighbours,
         window,
         range,
         [&](std::uint64_t first, const Vertex* values, std::uint64_t count) {
           each_list(graph,
                     vertex,
                     first,
                     count,
                     [&](std::uint64_t owner, std::uint64_t begin, std::uint64_t length) {
                       tally.damaged += each.list(
                           warp, owner, {first + begin, first + begin + length}, values + begin);
                     });
         });
    tally.add_to(warp, *progress);
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    return read_ahead(neighbours, threads, {first, end}, [&](std::uint64_t item) {
      return graph.item(item, backwards);
    });
  }
#endif
};

// What goes through some vertices' lists only, or what a tile has of them. `Each` has
//   wants(vertex), which others may be changing;
//   begun(vertex, neighbours, part, tally): by a lane, before the others look; takes away from the
//     part what it has seen, and tells whether no more is wanted;
//   list(warp, vertex, neighbours, window, part, tally): the rest, by all lanes.
template <typename Source, typename Each>
struct ChosenLists {
  static constexpr unsigned at_once = 32;
  template <unsigned Bytes>
  using Buffer = Window<Vertex, Bytes>;

  Csr graph;
  Source neighbours;
  Each each;
  bool backwards;
  Progress* progress;

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    const Range range = graph.item(item, backwards);
    Tally tally;
    for (std::uint64_t vertex = graph.owner_of(range.begin);
         vertex < graph.vertices && graph.offsets[vertex] < range.end;
         vertex = graph.after(vertex, Warp::lanes)) {
      Range mine = wanted_part(vertex + warp.rank(), range);
      const bool done = each.begun(vertex + warp.rank(), neighbours, mine, tally);
      unsigned left = warp.vote(!done && mine.begin < mine.end);
      for (unsigned lane = 0; left != 0; left >>= 1U, ++lane) {
        if (left % 2 == 1) {
          const Range part{warp.from(lane, mine.begin), warp.from(lane, mine.end)};
          each.list(warp, vertex + lane, neighbours, window, part, tally);
        }
      }
    }
    tally.add_to(warp, *progress);
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    return read_ahead(neighbours, threads, {first, end}, [&](std::uint64_t item) {
      const Range range = graph.item(item, backwards);
      Range wanted;  // from the first list to the last
      for (std::uint64_t vertex = graph.owner_of(range.begin);
           vertex < graph.vertices && graph.offsets[vertex] < range.end;
           vertex = graph.after(vertex, 1)) {
        const Range part = wanted_part(vertex, range);
        if (part.begin < part.end) {
          wanted = {wanted.end == 0 ? part.begin : wanted.begin, part.end};
        }
      }
      return wanted;
    });
  }
#endif

 private:
  // What of a vertex' list lies in `range`, if it is wanted.
  [[nodiscard]] HIPPO_DEVICE Range wanted_part(std::uint64_t vertex, Range range) const {
    if (vertex >= graph.vertices || !each.wants(vertex)) {
      return {};
    }
    return {larger(graph.offsets[vertex], range.begin),
            smaller(graph.offsets[vertex + 1], range.end)};
  }
};

// Which tiles of the edges have something of the lists that ChosenLists<Source, Each> goes through:
// gets to be `stamp` what is another number before.
template <typename Each>
struct MarkTiles {
  Csr graph;
  Each each;
  std::uint64_t edges_a_tile;
  unsigned stamp;
  unsigned* tiles;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    if (graph.degree(vertex) == 0 || !each.wants(vertex)) {
      return;
    }
    const std::uint64_t last = (graph.offsets[vertex + 1] - 1) / edges_a_tile;
    for (std::uint64_t tile = graph.offsets[vertex] / edges_a_tile; tile <= last; ++tile) {
      const unsigned seen = peek(tiles[tile]);
      if (seen != stamp) {
        replace(tiles[tile], seen, stamp);
      }
    }
  }
};
