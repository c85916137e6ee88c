// The host's part: levels until nothing is found, both halves of Afforest, iterations.
#include "workloads/graph/algorithms.hpp"

#include "workloads/graph/components_kernel.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace {

// From this part of all vertices on the queue is put in order: that reads all distances.
constexpr std::uint64_t large_level = 64;
// From this part of all edges, or vertices, on reading less is worth going through all vertices.
constexpr std::uint64_t worth_all_vertices = 1024;
// How much more may be read from below than from above: most vertices find a neighbour soon.
constexpr std::uint64_t below_to_above = 2;
constexpr std::uint64_t probe_count = 1024;

std::uint64_t parts_of_list(std::uint64_t degree) {
  return parts_of(degree, neighbours_an_item);
}

}  // namespace

GraphOnDevice::GraphOnDevice(const GraphFile& graph, Device& device, const Neighbours& neighbours)
    : graph_(graph),
      stored_(neighbours.stored.get()),
      tiles_(neighbours.tiles.get()),
      memory_(device, Workspace::Allocator::device),
      progress_(memory_.allocate<Progress>(1)) {
  auto* offsets = memory_.allocate<std::uint64_t>(graph.offsets().size());
  device.copy_in(offsets, graph.offsets().data(), graph.offsets().size() * sizeof(std::uint64_t));
  csr_ = {graph.vertices(), graph.edges(), offsets, 0, graph.edges()};
}

void GraphOnDevice::prepare(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::bfs: {
      distances_ = memory_.allocate<int>(csr_.vertices);
      if (tiles_ != nullptr) {
        const std::vector<unsigned> none(tiles_->count() + 1);
        marks_ = memory_.allocate<unsigned>(none.size());
        memory_.device().copy_in(marks_, none.data(), none.size() * sizeof(unsigned));
        return;
      }
      // Each vertex is found once, so that a level has no more entries than all lists have parts.
      const std::uint64_t entries = csr_.vertices + csr_.edges / neighbours_an_item + 1;
      queue_ = memory_.allocate<Entry>(entries);
      next_ = memory_.allocate<Entry>(entries);
      return;
    }
    case Algorithm::components:
      labels_ = memory_.allocate<Vertex>(csr_.vertices);
      probes_ = memory_.allocate<Vertex>(probe_count);
      return;
    case Algorithm::pagerank:
      page_rank_ = {csr_.offsets,
                    memory_.allocate<double>(csr_.vertices),
                    memory_.allocate<double>(csr_.vertices),
                    memory_.allocate<double>(csr_.vertices),
                    (1 - page_rank_damping) / static_cast<double>(csr_.vertices),
                    page_rank_damping};
  }
}

void GraphOnDevice::bfs(std::uint64_t source, bool only_top_down) {
  run_for_all(memory_.device(), BfsBegin{distances_}, csr_.vertices);
  memory_.put(distances_ + source, 0);
  Progress last{.found = parts_of_list(graph_.degree(source)), .edges = graph_.degree(source)};
  for (std::uint64_t part = 0; part < last.found && tiles_ == nullptr; ++part) {
    memory_.put(queue_ + part, Entry{part} << 32U | source);
  }
  std::uint64_t not_reached = csr_.edges - last.edges;
  bool below = !only_top_down;
  bool queued = true;
  for (passes_ = 0; last.found > 0; ++passes_) {
    const int level = static_cast<int>(passes_);
    if (below && from_below_is_better(last.edges, not_reached)) {
      const std::uint64_t above = last.edges;
      const BfsFromBelow each{csr_, level, distances_};
      last = tiles_ != nullptr ? tiled_lists(each) : chosen_lists(each);
      queued = false;
      below = last.looked <= above;  // else much cannot be reached: it would be read each time
    } else if (tiles_ != nullptr) {
      last = tiled_lists(BfsFromAbove{csr_, level, distances_});
    } else {
      if (!queued || last.found > csr_.vertices / large_level) {
        last.found = collect(level);
      }
      last = from_above(level, last.found);
      queued = true;
    }
    not_reached -= last.edges;
  }
}

// From above the lists of what was reached last are read, from below at most those of all that is
// not reached yet, but all vertices are gone through.
bool GraphOnDevice::from_below_is_better(std::uint64_t last, std::uint64_t not_reached) const {
  return last > std::max(csr_.edges, csr_.vertices) / worth_all_vertices &&
         last > not_reached / below_to_above;
}

Progress GraphOnDevice::from_above(int level, std::uint64_t entries) {
  memory_.put(progress_, Progress{});
  stored_->with([&](const auto& from) {
    run_warps(memory_.device(),
              BfsLevel<std::decay_t<decltype(from)>>{
                  csr_, from, level, distances_, queue_, next_, progress_},
              entries);
  });
  std::swap(queue_, next_);
  return progress_made();
}

std::uint64_t GraphOnDevice::collect(int level) {
  memory_.put(progress_, Progress{});
  const BfsCollect work{csr_, level, distances_, queue_, &progress_->found};
  run_warps(memory_.device(), work, work.items());
  return progress_made().found;
}

void GraphOnDevice::components() {
  run_for_all(memory_.device(), CcBegin{labels_}, csr_.vertices);
  if (tiles_ != nullptr) {
    join_tiles();
  } else {
    join_lists();
  }
  run_for_all(memory_.device(), CcJump{labels_}, csr_.vertices);
}

void GraphOnDevice::join_lists() {
  const Device& device = memory_.device();
  memory_.put(progress_, Progress{});
  stored_->with([&](const auto& from) {
    const CcSample<std::decay_t<decltype(from)>> work{csr_, from, labels_, progress_};
    run_warps(device, work, work.items());
  });
  progress_made();
  run_for_all(device, CcJump{labels_}, csr_.vertices);
  passes_ = 1;
  chosen_lists(CcOthers{common_label(), csr_.vertices, labels_});
  passes_ = 2;
}

// Each tile once. After the first one most of a large component is found: what is in it needs no
// more joining. Whichever component that is, it must stay the same one: an edge between two
// vertices that were both left out lies in it.
void GraphOnDevice::join_tiles() {
  memory_.put(progress_, Progress{});
  auto common = static_cast<Vertex>(csr_.vertices);  // nobody's label
  std::uint64_t done = 0;
  tiles_->through(tiles_->all(false), [&](const Tile& tile) {
    const CcOthers others{common, csr_.vertices, labels_};
    start_tile(tile, [&](const Csr& part, const auto& from) {
      return ChosenLists<PlainData<Vertex>, CcOthers>{part, from, others, false, progress_};
    });
    if (std::has_single_bit(++done)) {
      start_for_all(memory_.device(), CcJump{labels_}, csr_.vertices);
      common = done > 1 ? memory_.get(labels_ + common) : common_label();
    }
  });
  passes_ = 1;
  progress_made();
}

// The label that most of some vertices have.
Vertex GraphOnDevice::common_label() const {
  start_for_all(memory_.device(), CcProbe{csr_.vertices, labels_, probes_}, probe_count);
  std::vector<Vertex> labels(probe_count);
  memory_.device().copy_out(labels.data(), probes_, labels.size() * sizeof(Vertex));
  std::unordered_map<Vertex, unsigned> counts;
  for (const Vertex label : labels) {
    ++counts[label];
  }
  return std::max_element(
             counts.begin(),
             counts.end(),
             [](const auto& one, const auto& other) { return one.second < other.second; })
      ->first;
}

void GraphOnDevice::pagerank(unsigned iterations) {
  const Device& device = memory_.device();
  run_for_all(
      device, PageRankBegin{page_rank_, 1 / static_cast<double>(csr_.vertices)}, csr_.vertices);
  for (passes_ = 0; passes_ < iterations; ++passes_) {
    memory_.put(progress_, Progress{});
    const PageRankPull pull{csr_.vertices, page_rank_.shares, page_rank_.sums};
    const auto work_of = [&](const Csr& part, const auto& from) {
      return EveryEdge<std::decay_t<decltype(from)>, PageRankPull>{
          part, from, pull, backwards(), progress_};
    };
    if (tiles_ != nullptr) {
      tiles_->through(tiles_->all(backwards()),
                      [&](const Tile& tile) { start_tile(tile, work_of); });
    } else {
      stored_->with(
          [&](const auto& from) { run_warps(device, work_of(csr_, from), csr_.items()); });
    }
    progress_made();
    run_for_all(device, page_rank_, csr_.vertices);
  }
}

template <typename Each>
Progress GraphOnDevice::chosen_lists(const Each& each) {
  memory_.put(progress_, Progress{});
  stored_->with([&](const auto& from) {
    run_warps(
        memory_.device(),
        ChosenLists<std::decay_t<decltype(from)>, Each>{csr_, from, each, backwards(), progress_},
        csr_.items());
  });
  return progress_made();
}

// The same by tiles, of which those without such lists are left out.
template <typename Each>
Progress GraphOnDevice::tiled_lists(const Each& each) {
  memory_.put(progress_, Progress{});
  tiles_->through(tiles_of(each), [&](const Tile& tile) {
    start_tile(tile, [&](const Csr& part, const PlainData<Vertex>& from) {
      return ChosenLists<PlainData<Vertex>, Each>{part, from, each, backwards(), progress_};
    });
  });
  return progress_made();
}

template <typename Each>
std::vector<std::uint64_t> GraphOnDevice::tiles_of(const Each& each) {
  const MarkTiles<Each> mark{csr_, each, tiles_->shape().elements, ++stamp_, marks_};
  start_for_all(memory_.device(), mark, csr_.vertices);
  std::vector<unsigned> marks(tiles_->count());
  memory_.device().copy_out(marks.data(), marks_, marks.size() * sizeof(unsigned));
  std::vector<std::uint64_t> tiles = tiles_->all(backwards());
  std::erase_if(tiles, [&](std::uint64_t tile) { return marks[tile] != stamp_; });
  return tiles;
}

// What is done with a tile's edges is on the default stream then.
template <typename WorkOf>
void GraphOnDevice::start_tile(const Tile& tile, const WorkOf& work_of) const {
  Csr part = csr_;
  part.first = tile.elements.begin;
  part.stop = tile.elements.end;
  const PlainData<Vertex> from{
      tile.part<Vertex>(0), tile.elements.end - tile.elements.begin, tile.elements.begin};
  start_warps(memory_.device(), work_of(part, from), part.items());
}

// What a kernel counted; it has ended.
Progress GraphOnDevice::progress_made() const {
  if (stored_ != nullptr) {
    stored_->check();
  }
  const Progress made = memory_.get(progress_);  // once all kernels are through
  if (made.damaged != 0) {
    throw std::runtime_error(graph_.file().path() + " is damaged: " + std::to_string(made.damaged) +
                             " neighbours are no vertices");
  }
  return made;
}
