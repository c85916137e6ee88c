// The algorithms once more, by one thread and as plainly as they can be written.
#include "workloads/graph/algorithms.hpp"

#include <cstddef>
#include <deque>
#include <numeric>
#include <stdexcept>

namespace {

// Calls act(vertex, neighbour) for every edge.
template <typename Act>
void each_edge(const GraphFile& graph, const std::vector<Vertex>& neighbours, const Act& act) {
  for (std::uint64_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    for (std::uint64_t i = graph.offsets()[vertex]; i < graph.offsets()[vertex + 1]; ++i) {
      act(vertex, neighbours.at(i));
    }
  }
}

}  // namespace

std::vector<int> bfs_oracle(const GraphFile& graph,
                            const std::vector<Vertex>& neighbours,
                            std::uint64_t source) {
  std::vector<int> distances(graph.vertices(), -1);
  std::deque<std::uint64_t> waiting{source};
  distances.at(source) = 0;
  while (!waiting.empty()) {
    const std::uint64_t vertex = waiting.front();
    waiting.pop_front();
    for (std::uint64_t i = graph.offsets()[vertex]; i < graph.offsets()[vertex + 1]; ++i) {
      int& distance = distances.at(neighbours.at(i));
      if (distance < 0) {
        distance = distances[vertex] + 1;
        waiting.push_back(neighbours[i]);
      }
    }
  }
  return distances;
}

std::vector<Vertex> components_oracle(const GraphFile& graph,
                                      const std::vector<Vertex>& neighbours) {
  std::vector<Vertex> parents(graph.vertices());
  std::iota(parents.begin(), parents.end(), Vertex{0});
  const auto root = [&](std::uint64_t vertex) {
    while (parents.at(vertex) != vertex) {
      parents[vertex] = parents[parents[vertex]];
      vertex = parents[vertex];
    }
    return vertex;
  };
  each_edge(graph, neighbours, [&](std::uint64_t a, std::uint64_t b) {
    const std::uint64_t one = root(a);
    const std::uint64_t other = root(b);
    parents[std::max(one, other)] = static_cast<Vertex>(std::min(one, other));
  });
  for (std::uint64_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    parents[vertex] = static_cast<Vertex>(root(vertex));
  }
  return parents;
}

std::vector<double> pagerank_oracle(const GraphFile& graph,
                                    const std::vector<Vertex>& neighbours,
                                    unsigned iterations) {
  const auto count = static_cast<double>(graph.vertices());
  std::vector<double> ranks(graph.vertices(), 1 / count);
  for (unsigned round = 0; round < iterations; ++round) {
    std::vector<double> sums(graph.vertices(), 0);
    each_edge(graph, neighbours, [&](std::uint64_t to, std::uint64_t from) {
      sums[to] += ranks.at(from) / static_cast<double>(graph.degree(from));
    });
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      ranks[i] = (1 - page_rank_damping) / count + page_rank_damping * sums[i];
    }
  }
  return ranks;
}
