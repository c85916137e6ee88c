// Breadth-first search, connected components and PageRank on a device, wherever the neighbours are.
#pragma once

#include "workloads/arrays/stored.hpp"
#include "workloads/arrays/tiles.hpp"
#include "workloads/graph/bfs_kernel.hpp"
#include "workloads/graph/graph_file.hpp"
#include "workloads/graph/pagerank_kernel.hpp"
#include "workloads/papers/program.hpp"

#include <cstdint>
#include <string>
#include <vector>

enum class Algorithm { bfs, components, pagerank };

// The lists of a graph: all of them at hand, or coming by tiles. One of the two is there.
struct Neighbours {
  std::unique_ptr<StoredData<Vertex>> stored;
  std::unique_ptr<Tiles> tiles;
};

// A device with a graph's offsets and what an algorithm knows of vertices. Functions wait, and
// throw std::runtime_error for neighbours that are no vertices, hippogriff::TransferError for what
// could not be read.
class GraphOnDevice {
 public:
  GraphOnDevice(const GraphFile& graph, Device& device, const Neighbours& neighbours);

  // Allocates what the algorithm works with: before it, once.
  void prepare(Algorithm algorithm);

  // How many edges each vertex is away from `source`, -1 where no way leads.
  void bfs(std::uint64_t source, bool only_top_down);
  // The least vertex of each vertex' component.
  void components();
  void pagerank(unsigned iterations);

  [[nodiscard]] std::vector<int> distances() const { return out<int>(distances_); }

  [[nodiscard]] std::vector<Vertex> labels() const { return out<Vertex>(labels_); }

  [[nodiscard]] std::vector<double> ranks() const { return out<double>(page_rank_.ranks); }

  // Of the last one: levels, halves of Afforest (or passes over tiles), iterations.
  [[nodiscard]] unsigned passes() const { return passes_; }

 private:
  template <typename T>
  [[nodiscard]] std::vector<T> out(const T* from) const {
    std::vector<T> values(csr_.vertices);
    memory_.device().copy_out(values.data(), from, values.size() * sizeof(T));
    return values;
  }

  [[nodiscard]] bool from_below_is_better(std::uint64_t last, std::uint64_t not_reached) const;
  Progress from_above(int level, std::uint64_t entries);
  std::uint64_t collect(int level);
  void join_lists();
  void join_tiles();
  [[nodiscard]] Vertex common_label() const;
  template <typename Each>
  Progress chosen_lists(const Each& each);
  template <typename Each>
  Progress tiled_lists(const Each& each);
  template <typename Each>
  std::vector<std::uint64_t> tiles_of(const Each& each);
  template <typename WorkOf>
  void start_tile(const Tile& tile, const WorkOf& work_of) const;

  [[nodiscard]] bool backwards() const { return passes_ % 2 == 1; }

  Progress progress_made() const;

  const GraphFile& graph_;
  const StoredData<Vertex>* stored_;  // null where there are tiles
  Tiles* tiles_;
  Workspace memory_;
  Csr csr_{};
  Progress* progress_;
  int* distances_ = nullptr;
  Entry* queue_ = nullptr;
  Entry* next_ = nullptr;
  Vertex* labels_ = nullptr;
  Vertex* probes_ = nullptr;
  unsigned* marks_ = nullptr;  // of tiles
  unsigned stamp_ = 0;         // the latest mark
  PageRankState page_rank_{};
  unsigned passes_ = 0;
};

// The same by one thread, from a list in host memory, with no code in common. Throws
// std::runtime_error for neighbours that are no vertices.
std::vector<int> bfs_oracle(const GraphFile& graph,
                            const std::vector<Vertex>& neighbours,
                            std::uint64_t source);
std::vector<Vertex> components_oracle(const GraphFile& graph,
                                      const std::vector<Vertex>& neighbours);
std::vector<double> pagerank_oracle(const GraphFile& graph,
                                    const std::vector<Vertex>& neighbours,
                                    unsigned iterations);

// Of PageRank, relative: sums come in another order.
inline constexpr double rank_tolerance = 1e-9;
inline constexpr double page_rank_damping = 0.85;
