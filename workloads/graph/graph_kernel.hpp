// The kernels of `graph`: lists of neighbours come from an array in storage, or from memory;
// offsets and what is known of vertices are in the device's memory.
#pragma once

#include "workloads/arrays/warp.hpp"

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

using Vertex = std::uint32_t;

// How many neighbours a warp takes at a time: a vertex may have millions.
inline constexpr std::uint64_t neighbours_an_item = 2048;

// Offsets have been checked: they begin with 0, never fall, and end with the number of edges.
struct Csr {
  std::uint64_t vertices;
  std::uint64_t edges;
  const std::uint64_t* offsets;

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

  [[nodiscard]] HIPPO_HOST_DEVICE Range item(std::uint64_t number) const {
    const std::uint64_t begin = number * neighbours_an_item;
    const std::uint64_t end = begin + neighbours_an_item;
    return {begin, end < edges ? end : edges};
  }

  [[nodiscard]] std::uint64_t items() const { return parts_of(edges, neighbours_an_item); }
};

// Counted by all warps together.
struct Progress {
  unsigned long long found;    // entries of the next queue
  unsigned long long damaged;  // neighbours that are no vertices
  unsigned long long changed;
};

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
      ++vertex;
    }
    const std::uint64_t stop = smaller(graph.offsets[vertex + 1], first + count) - first;
    act(vertex, done, stop - done);
    done = stop;
  }
}

// What goes through all edges, as many to each warp, whosever they are. `Each` has
// list(warp, vertex, first, values, count), which returns how many neighbours were no vertices.
template <typename Source, typename Each>
struct EveryEdge {
  static constexpr unsigned at_once = 32;
  template <unsigned Bytes>
  using Buffer = Window<Vertex, Bytes>;

  Csr graph;
  Source neighbours;
  Each each;
  Progress* progress;

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    const Range range = graph.item(item);
    std::uint64_t vertex = graph.owner_of(range.begin);
    unsigned damaged = 0;
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
                       damaged += each.list(
                           warp, owner, {first + begin, first + begin + length}, values + begin);
                     });
         });
    if (damaged > 0) {
      fetch_add(progress->damaged, 1ULL * damaged);
    }
  }

#ifndef __CUDACC__
  [[nodiscard]] std::uint64_t ahead(std::uint64_t first,
                                    std::uint64_t end,
                                    unsigned threads) const {
    return read_ahead(
        neighbours, threads, {first, end}, [&](std::uint64_t item) { return graph.item(item); });
  }
#endif
};

// --- breadth-first search ---

// A vertex in the lower half, which part of its list in the upper one.
using Entry = unsigned long long;

// A level, top down: each entry of the queue is a vertex reached last, or a part of a long list.
template <typename Source>
struct BfsLevel {
  static constexpr unsigned at_once = 32;
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
    unsigned damaged = 0;
    walk(warp,
         neighbours,
         window,
         list(item),
         [&](std::uint64_t first, const Vertex* values, std::uint64_t count) {
           each_lane(
               warp, first, values, count, [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                 const bool known = target < graph.vertices;
                 damaged += valid && !known ? 1 : 0;
                 enqueue(warp, target, valid && known && reached(target));
               });
         });
    if (damaged > 0) {
      fetch_add(progress->damaged, 1ULL * damaged);
    }
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
  HIPPO_DEVICE void enqueue(const Warp& warp, Vertex target, bool found) const {
    const auto parts =
        found ? static_cast<unsigned>(parts_of(graph.degree(target), neighbours_an_item)) : 0U;
    const unsigned long long place = warp.reserve(progress->found, parts);
    for (unsigned part = 0; part < parts; ++part) {
      next[place + part] = Entry{part} << 32U | target;
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

// --- connected components: hooking and jumping (Shiloach and Vishkin, 1982) ---

struct CcBegin {
  Vertex* labels;

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    labels[vertex] = static_cast<Vertex>(vertex);
  }
};

// The greater label of an edge's ends becomes one of the smaller's. A round in which all edges'
// ends have the same label ends it.
struct CcHook {
  std::uint64_t vertices;
  Vertex* labels;
  Progress* progress;

  template <typename Warp>
  HIPPO_DEVICE unsigned list(const Warp& warp,
                             std::uint64_t vertex,
                             Range range,
                             const Vertex* values) const {
    unsigned damaged = 0;
    unsigned changed = 0;
    each_lane(warp,
              range.begin,
              values,
              range.end - range.begin,
              [&](Vertex target, std::uint64_t /*index*/, bool valid) {
                if (!valid || target >= vertices) {
                  damaged += valid ? 1 : 0;
                  return;
                }
                const Vertex mine = peek(labels[vertex]);
                const Vertex theirs = peek(labels[target]);
                if (mine != theirs) {
                  lower(labels[larger(mine, theirs)], smaller(mine, theirs));
                  changed = 1;
                }
              });
    if (changed > 0) {
      put(progress->changed, 1ULL);
    }
    return damaged;
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

// --- PageRank, by pulling: the edges lead both ways ---

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
