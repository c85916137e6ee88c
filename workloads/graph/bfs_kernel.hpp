// Breadth-first search's kernels: a level from the vertices reached last, or from those not
// reached.
#pragma once

#include "workloads/graph/edges_kernel.hpp"

// A vertex in the lower half, which part of its list in the upper one.
using Entry = unsigned long long;

// A level, top down: each entry of the queue is a vertex reached last, or a part of a long list.
template <typename Source>
struct BfsLevel {
  static constexpr unsigned at_once = 32;
  static constexpr unsigned warps_at_once = 24;
  template <unsigned Bytes>
  using Buffer = Window<Vertex, Bytes>;

  Csr graph;
  Source neighbours;
  int level;  // of the vertices in the queue
  int* distances;
  const Entry* queue;
  Entry* next;
  Progress* progress;

  [[nodiscard]] HIPPO_HOST_DEVICE Range list(std::uint64_t item) const {
    const std::uint64_t vertex = queue[item] & 0xFFFFFFFFU;
    const std::uint64_t begin = graph.offsets[vertex] + (queue[item] >> 32U) * neighbours_an_item;
    const std::uint64_t end = begin + neighbours_an_item;
    return {begin, end < graph.offsets[vertex + 1] ? end : graph.offsets[vertex + 1]};
  }

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    Tally tally;
    walk(warp,
         neighbours,
         window,
         list(item),
         [&](std::uint64_t first, const Vertex* values, std::uint64_t count) {
           each_lane(
               warp, first, values, count, [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                 const bool known = target < graph.vertices;
                 tally.damaged += valid && !known ? 1 : 0;
                 enqueue(warp, target, valid && known && reached(target), tally);
               });
         });
    tally.add_to(warp, *progress);
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    return read_ahead(
        neighbours, threads, {first, end}, [&](std::uint64_t item) { return list(item); });
  }
#endif

 private:
  // Whether this lane is the first that comes to the vertex.
  [[nodiscard]] HIPPO_DEVICE bool reached(Vertex target) const {
    return peek(distances[target]) < 0 && replace(distances[target], -1, level + 1);
  }

  template <typename Warp>
  HIPPO_DEVICE void enqueue(const Warp& warp, Vertex target, bool found, Tally& tally) const {
    const std::uint64_t degree = found ? graph.degree(target) : 0;
    const auto parts = static_cast<unsigned>(parts_of(degree, neighbours_an_item));
    tally.edges += degree;
    const unsigned long long place = warp.reserve(progress->found, parts);
    for (unsigned part = 0; part < parts; ++part) {
      next[place + part] = Entry{part} << 32U | target;
    }
  }
};

// A level, top down, for tiles of the edges: no queue says whose lists are read, distances do. A
// lane takes a short list, all lanes a longer one.
struct BfsFromAbove {
  static constexpr std::uint64_t short_list = 4;

  Csr graph;
  int level;  // of the vertices whose lists are read
  int* distances;

  [[nodiscard]] HIPPO_DEVICE bool wants(std::uint64_t vertex) const {
    return peek(distances[vertex]) == level;
  }

  template <typename Source>
  [[nodiscard]] HIPPO_DEVICE bool begun(std::uint64_t /*vertex*/,
                                        const Source& neighbours,
                                        const Range& part,
                                        Tally& tally) const {
    if (part.end - part.begin > short_list) {
      return false;
    }
    for (std::uint64_t i = part.begin; i < part.end; ++i) {
      reach(neighbours[i], tally);
    }
    return true;
  }

  template <typename Warp, typename Source, typename Window>
  HIPPO_DEVICE void list(const Warp& warp,
                         std::uint64_t /*vertex*/,
                         const Source& neighbours,
                         Window& window,
                         Range part,
                         Tally& tally) const {
    walk(warp,
         neighbours,
         window,
         part,
         [&](std::uint64_t first, const Vertex* values, std::uint64_t count) {
           each_lane(
               warp, first, values, count, [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                 if (valid) {
                   reach(target, tally);
                 }
               });
         });
  }

 private:
  HIPPO_DEVICE void reach(Vertex target, Tally& tally) const {
    if (target >= graph.vertices) {
      ++tally.damaged;
    } else if (peek(distances[target]) < 0 && replace(distances[target], -1, level + 1)) {
      ++tally.found;
      tally.edges += graph.degree(target);
    }
  }
};

// A level, bottom up (Beamer, Asanovic and Patterson, SC 2012): each vertex that is not reached
// looks for a neighbour that was reached last, and reads no more of its list once it has one. A
// lane takes a vertex' first neighbours; the few who find none there are looked after by all lanes.
struct BfsFromBelow {
  static constexpr unsigned first_neighbours = 4;

  Csr graph;
  int level;  // of the vertices reached last
  int* distances;

  [[nodiscard]] HIPPO_DEVICE bool wants(std::uint64_t vertex) const {
    return peek(distances[vertex]) < 0;
  }

  template <typename Source>
  [[nodiscard]] HIPPO_DEVICE bool begun(std::uint64_t vertex,
                                        const Source& neighbours,
                                        Range& part,
                                        Tally& tally) const {
    for (unsigned seen = 0; seen < first_neighbours && part.begin < part.end; ++seen) {
      if (was_reached_last(neighbours[part.begin++], tally)) {
        reach(vertex, tally);
        return true;
      }
    }
    return false;
  }

  template <typename Warp, typename Source, typename Window>
  HIPPO_DEVICE void list(const Warp& warp,
                         std::uint64_t vertex,
                         const Source& neighbours,
                         Window& window,
                         Range part,
                         Tally& tally) const {
    bool found = false;
    walk(warp,
         neighbours,
         window,
         part,
         [&](std::uint64_t /*first*/, const Vertex* values, std::uint64_t count) {
           for (std::uint64_t i = 0; i < count && !found; i += Warp::lanes) {
             const bool valid = i + warp.rank() < count;
             found = warp.any(valid && was_reached_last(values[i + warp.rank()], tally));
           }
           return !found;
         });
    if (found && warp.rank() == 0) {
      reach(vertex, tally);
    }
  }

 private:
  [[nodiscard]] HIPPO_DEVICE bool was_reached_last(Vertex target, Tally& tally) const {
    ++tally.looked;
    if (target >= graph.vertices) {
      ++tally.damaged;
      return false;
    }
    return peek(distances[target]) == level;
  }

  HIPPO_DEVICE void reach(std::uint64_t vertex, Tally& tally) const {
    if (replace(distances[vertex], -1, level + 1)) {
      ++tally.found;
      tally.edges += graph.degree(vertex);
    }
  }
};

// Makes the queue of a large level anew, in the order of vertices: lists that are read at the same
// time then lie in the same lines.
struct BfsCollect {
  static constexpr unsigned at_once = 1;
  static constexpr std::uint64_t vertices_an_item = 1024;
  template <unsigned Bytes>
  using Buffer = unsigned long long;  // where in the queue the item's entries go on

  Csr graph;
  int level;
  const int* distances;
  Entry* queue;
  unsigned long long* entries;

  [[nodiscard]] std::uint64_t items() const { return parts_of(graph.vertices, vertices_an_item); }

  template <typename Warp>
  HIPPO_DEVICE void operator()(const Warp& warp,
                               unsigned long long& cursor,
                               std::uint64_t item) const {
    const std::uint64_t first = item * vertices_an_item;
    const std::uint64_t count = smaller(vertices_an_item, graph.vertices - first);
    unsigned all = 0;
    each_lane(
        warp, first, distances + first, count, [&](int distance, std::uint64_t vertex, bool valid) {
          all += parts(distance, vertex, valid);
        });
    all = warp.sum(all);
    warp.meet();
    if (warp.rank() == 0) {
      cursor = fetch_add(*entries, 1ULL * all);
    }
    warp.meet();
    each_lane(
        warp, first, distances + first, count, [&](int distance, std::uint64_t vertex, bool valid) {
          const unsigned mine = parts(distance, vertex, valid);
          const unsigned long long place = warp.reserve(cursor, mine);
          for (unsigned part = 0; part < mine; ++part) {
            queue[place + part] = Entry{part} << 32U | vertex;
          }
        });
  }

 private:
  [[nodiscard]] HIPPO_DEVICE unsigned parts(int distance, std::uint64_t vertex, bool valid) const {
    return valid && distance == level
               ? static_cast<unsigned>(parts_of(graph.degree(vertex), neighbours_an_item))
               : 0U;
  }
};

struct BfsBegin {
  int* distances;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const { distances[vertex] = -1; }
};
