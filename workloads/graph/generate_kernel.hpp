// The kernels that make a graph on a GPU, and what comes between them. Neighbours are keys: a
// list's owner, counted from the part's first vertex, above so many bits of the neighbour. Sorted,
// and without what is there twice, they are the lists.
#pragma once

#include "workloads/arrays/warp.hpp"
#include "workloads/graph/csr.hpp"
#include "workloads/graph/edges.hpp"

using Count = unsigned long long;  // what a GPU adds to

struct ClearCounts {
  Count* counts;

  HIPPO_DEVICE void operator()(std::uint64_t i) const { counts[i] = 0; }
};

// How often each vertex is drawn, one place behind its own: its running sum is what precedes it.
struct CountDrawn {
  Edges edges;
  Count* counts;

  HIPPO_DEVICE void operator()(std::uint64_t i) const {
    const Edge edge = edges.at(i);
    if (edge.a != edge.b) {
      fetch_add(counts[edge.a + 1], Count{1});
      fetch_add(counts[edge.b + 1], Count{1});
    }
  }
};

// Draws all edges and keeps the keys of lists whose owners are in a part, in any order.
struct DrawPart {
  static constexpr unsigned at_once = 16;
  static constexpr std::uint64_t an_item = 1024;

  template <unsigned Bytes>
  using Buffer = NothingShared;

  Edges edges;
  std::uint64_t first = 0;  // vertex
  std::uint64_t last = 0;
  unsigned bits = 0;  // of a neighbour
  Count* keys = nullptr;
  Count room = 0;         // for keys
  Count* kept = nullptr;  // may become more than there is room for: then some were left out

  [[nodiscard]] std::uint64_t items() const { return parts_of(edges.count(), an_item); }

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    const auto end = smaller<std::uint64_t>((item + 1) * an_item, edges.count());
    for (std::uint64_t begin = item * an_item; begin < end; begin += Warp::lanes) {
      const std::uint64_t i = begin + warp.rank();
      const Edge edge = i < end ? edges.at(i) : Edge{0, 0};
      const bool has_a = edge.a != edge.b && edge.a >= first && edge.a < last;
      const bool has_b = edge.a != edge.b && edge.b >= first && edge.b < last;
      Count place = warp.reserve(*kept, (has_a ? 1U : 0U) + (has_b ? 1U : 0U));
      if (has_a) {
        keep(place++, edge.a, edge.b);
      }
      if (has_b) {
        keep(place, edge.b, edge.a);
      }
    }
  }

 private:
  HIPPO_DEVICE void keep(Count place, std::uint64_t owner, std::uint64_t neighbour) const {
    if (place < room) {
      keys[place] = (owner - first) << bits | neighbour;
    }
  }
};

// Where the list of a part's vertex ends, by the keys in order.
struct ListEnds {
  const Count* keys;
  std::uint64_t count;
  unsigned bits;
  std::uint64_t before;  // neighbours of the parts before this one
  Count* ends;           // of the part's vertices

  HIPPO_DEVICE void operator()(std::uint64_t vertex) const {
    const Count beyond = (vertex + 1) << bits;
    std::uint64_t low = 0;
    for (std::uint64_t high = count; low < high;) {
      const std::uint64_t middle = low + (high - low) / 2;
      if (keys[middle] < beyond) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    ends[vertex] = before + low;
  }
};

struct TakeNeighbours {
  const Count* keys;
  Count mask;
  Vertex* neighbours;

  HIPPO_DEVICE void operator()(std::uint64_t i) const {
    neighbours[i] = static_cast<Vertex>(keys[i] & mask);
  }
};

// On the current GPU, by CUB; they wait, and take a little device memory meanwhile. Throw
// std::runtime_error.

// Each becomes the sum of all up to itself.
void gpu_running_sum(Count* values, std::uint64_t count);
// By the lowest `bits`, which are all there are. Returns which of the two has them in order; the
// other one is lost. At most keys_sorted_max.
Count* gpu_sort(Count* keys, Count* other, std::uint64_t count, unsigned bits);
// Of values in order each once; `kept` is a number in device memory.
void gpu_unique(const Count* from, Count* to, std::uint64_t count, Count* kept);
// What the GPU has free, in bytes.
std::uint64_t gpu_free_bytes();

inline constexpr std::uint64_t keys_sorted_max = std::uint64_t{1} << 30U;
