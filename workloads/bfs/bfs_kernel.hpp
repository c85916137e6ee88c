// A level of the search: a queue of nodes in, the nodes that they are the first to reach out
// (Merrill, Garland, Grimshaw, "Scalable GPU graph traversal", 2012: gathering by a block).
#pragma once

#include "workloads/papers/block.hpp"

struct BfsGraph {
  std::size_t nodes;
  std::size_t edges;
  const unsigned* first_edge;
  const unsigned* targets;
};

// Of a level, by all blocks together.
struct BfsProgress {
  unsigned found;
  unsigned damaged;  // edges and lists that lie outside the graph
};

// Nobody is reached but the source.
struct BfsBegin {
  static constexpr unsigned threads = 256;
  static constexpr std::size_t nodes_a_block = std::size_t{threads} * 16;
  using Shared = NothingShared;

  std::size_t nodes;
  std::size_t source;
  int* distances;
  unsigned* queue;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& /*shared*/) const {
    block.each([&](unsigned thread) {
      const std::size_t first = block.index() * nodes_a_block;
      const std::size_t last = smaller(first + nodes_a_block, nodes);
      for (std::size_t node = first + thread; node < last; node += threads) {
        distances[node] = node == source ? 0 : -1;
      }
      if (block.index() == 0 && thread == 0) {
        queue[0] = static_cast<unsigned>(source);
      }
    });
  }
};

// A block takes 256 nodes of the queue. Their edges are shared out evenly among its threads, so
// that a node with many does not keep the others waiting, and are read in the order of memory.
struct BfsLevel {
  static constexpr unsigned threads = 256;
  static constexpr unsigned edges_a_thread = 4;
  static constexpr unsigned edges_a_round = threads * edges_a_thread;

  struct Shared {
    unsigned first_edge[threads];
    unsigned long long edges_up_to[threads];  // of the nodes up to this one
    unsigned found[edges_a_round];
    unsigned found_count;
    unsigned place;  // of what was found in the next queue
  };

  BfsGraph graph;
  int level;  // of the nodes in the queue
  int* distances;
  const unsigned* queue;
  std::size_t queue_count;
  unsigned* next;
  BfsProgress* progress;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    block.each([&](unsigned thread) { look_up(block.index(), thread, shared); });
    add_up(block, shared);
    const unsigned long long edges = block.read(shared.edges_up_to[threads - 1]);
    for (unsigned long long done = 0; done < edges; done += edges_a_round) {
      block.each([&](unsigned thread) {
        for (unsigned i = 0; i < edges_a_thread; ++i) {
          follow(done + std::size_t{i} * threads + thread, edges, shared);
        }
      });
      const unsigned found = block.read(shared.found_count);
      block.each([&](unsigned thread) {
        if (thread == 0) {
          shared.place = found > 0 ? fetch_add(progress->found, found) : 0;
          shared.found_count = 0;
        }
      });
      block.each([&](unsigned thread) {
        for (unsigned i = thread; i < found; i += threads) {
          next[shared.place + i] = shared.found[i];
        }
      });
    }
  }

 private:
  HIPPO_DEVICE void look_up(std::size_t block_index, unsigned thread, Shared& shared) const {
    const std::size_t place = block_index * threads + thread;
    unsigned first = 0;
    unsigned last = 0;
    if (place < queue_count) {
      const unsigned node = queue[place];
      first = graph.first_edge[node];
      last = graph.first_edge[node + 1];
    }
    if (first > last || last > graph.edges) {
      fetch_add(progress->damaged, 1U);
      last = first;
    }
    shared.first_edge[thread] = first;
    shared.edges_up_to[thread] = last - first;
    if (thread == 0) {
      shared.found_count = 0;
    }
  }

  // Sums up to each thread (Hillis and Steele, 1986).
  template <typename Block>
  HIPPO_DEVICE static void add_up(const Block& block, Shared& shared) {
    typename Block::template PerThread<unsigned long long> before;
    for (unsigned apart = 1; apart < threads; apart *= 2) {
      block.each([&](unsigned thread) {
        before[thread] = thread >= apart ? shared.edges_up_to[thread - apart] : 0;
      });
      block.each([&](unsigned thread) { shared.edges_up_to[thread] += before[thread]; });
    }
  }

  // The node whose edge is number `edge` of the block's: the first with more up to it.
  [[nodiscard]] HIPPO_DEVICE static unsigned owner_of(unsigned long long edge,
                                                      const Shared& shared) {
    unsigned low = 0;
    for (unsigned half = threads / 2; half > 0; half /= 2) {
      low += shared.edges_up_to[low + half - 1] <= edge ? half : 0;
    }
    return low;
  }

  HIPPO_DEVICE void follow(unsigned long long edge,
                           unsigned long long edges,
                           Shared& shared) const {
    if (edge >= edges) {
      return;
    }
    const unsigned owner = owner_of(edge, shared);
    const unsigned long long before = owner > 0 ? shared.edges_up_to[owner - 1] : 0;
    const unsigned target = graph.targets[shared.first_edge[owner] + (edge - before)];
    if (target >= graph.nodes) {
      fetch_add(progress->damaged, 1U);
    } else if (peek(distances[target]) < 0 && replace(distances[target], -1, level + 1)) {
      shared.found[fetch_add(shared.found_count, 1U)] = target;
    }
  }
};
