// What is true of distances and of nothing else, and what files hold.
#include "workloads/bfs/bfs.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace {

constexpr std::uint64_t nodes_at_once = 1U << 16U;
constexpr std::uint64_t none = ~0ULL;

// Looks at the edges of nodes [first, first + count). The first wrong node, or none.
class Edges {
 public:
  Edges(const Input& in, const std::vector<int>& distances)
      : in_(in), distances_(distances), proven_(distances.size()) {}

  std::uint64_t look(std::uint64_t first, std::uint64_t count) {
    const std::vector<unsigned> begins = in_.elements<unsigned>(0, first, count + 1);
    const bool sorted = std::is_sorted(begins.begin(), begins.end());
    if (!sorted || begins.back() > bfs_edges(in_.numbers())) {
      throw std::runtime_error(in_.file().path() + " is damaged: lists lie outside the edges");
    }
    const std::vector<unsigned> targets =
        in_.elements<unsigned>(1, begins.front(), begins.back() - begins.front());
    for (std::uint64_t i = 0; i < count; ++i) {
      for (unsigned e = begins[i]; e < begins[i + 1]; ++e) {
        if (!follow(first + i, targets[e - begins.front()])) {
          return first + i;
        }
      }
    }
    return none;
  }

  [[nodiscard]] bool is_proven(std::uint64_t node) const { return proven_[node]; }

 private:
  bool follow(std::uint64_t from, unsigned to) {
    if (to >= distances_.size()) {
      throw std::runtime_error(in_.file().path() + " is damaged: an edge leads to node " +
                               std::to_string(to));
    }
    if (distances_[from] < 0) {
      return true;
    }
    if (distances_[to] == distances_[from] + 1) {
      proven_[to] = true;
    }
    return distances_[to] >= 0 && distances_[to] <= distances_[from] + 1;
  }

  const Input& in_;
  const std::vector<int>& distances_;
  std::vector<bool> proven_;  // an edge leads there from a node nearer by one
};

}  // namespace

Format bfs_format() {
  return {"bfs",
          {{"nodes", 1U << 20U, 1, std::numeric_limits<int>::max(), "of the graph"},
           {"degree", 6, 1, 65536, "edges of a node, on average"},
           {"source", 0, 0, std::numeric_limits<int>::max(), "the node to begin at"},
           {"edges", 0, 0, std::numeric_limits<unsigned>::max(), "all; 0: nodes x degree"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            if (numbers.at("source") >= numbers.at("nodes")) {
              throw std::invalid_argument("source is beyond the last node");
            }
            if (bfs_edges(numbers) > std::numeric_limits<unsigned>::max()) {
              throw std::invalid_argument("a graph has at most 2^32 - 1 edges, not " +
                                          std::to_string(bfs_edges(numbers)));
            }
            return {(numbers.at("nodes") + 1) * sizeof(unsigned),
                    bfs_edges(numbers) * sizeof(unsigned)};
          }};
}

std::uint64_t bfs_output_bytes(const Numbers& numbers) {
  return numbers.at("nodes") * sizeof(int);
}

std::uint64_t bfs_edges(const Numbers& numbers) {
  const std::uint64_t edges = numbers.at("edges");
  return edges == 0 ? numbers.at("nodes") * numbers.at("degree") : edges;
}

Verdict bfs_check(const Input& in, const File& out) {
  const std::uint64_t nodes = in.numbers().at("nodes");
  const std::uint64_t source = in.numbers().at("source");
  std::vector<int> distances(nodes);
  out.read(distances.data(), nodes * sizeof(int), 0);
  Edges edges(in, distances);
  for (std::uint64_t first = 0; first < nodes; first += nodes_at_once) {
    const std::uint64_t wrong = edges.look(first, std::min(nodes_at_once, nodes - first));
    if (wrong != none) {
      return {false, "an edge of node " + std::to_string(wrong) + " leads further than by one"};
    }
  }
  std::uint64_t reached = 0;
  for (std::uint64_t node = 0; node < nodes; ++node) {
    const bool good = node == source
                          ? distances[node] == 0
                          : distances[node] == -1 || (distances[node] > 0 && edges.is_proven(node));
    if (!good) {
      return {false,
              "no edge makes node " + std::to_string(node) + " " + std::to_string(distances[node]) +
                  " away"};
    }
    reached += distances[node] >= 0 ? 1 : 0;
  }
  return {true,
          "all " + std::to_string(nodes) + " nodes, " + std::to_string(reached) + " are reached"};
}
