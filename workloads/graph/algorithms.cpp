// The host's part: levels, rounds and iterations, until there is nothing left to do.
#include "workloads/graph/algorithms.hpp"

#include <stdexcept>
#include <utility>

namespace {

// From this part of all vertices on the queue is put in order: that reads all distances.
constexpr std::uint64_t large_level = 64;

std::uint64_t parts_of_list(std::uint64_t degree) {
  return parts_of(degree, neighbours_an_item);
}

}  // namespace

GraphOnDevice::GraphOnDevice(const GraphFile& graph,
                             Device& device,
                             const StoredData<Vertex>& neighbours)
    : graph_(graph),
      neighbours_(neighbours),
      memory_(device, Workspace::Allocator::device),
      progress_(memory_.allocate<Progress>(1)) {
  auto* offsets = memory_.allocate<std::uint64_t>(graph.offsets().size());
  device.copy_in(offsets, graph.offsets().data(), graph.offsets().size() * sizeof(std::uint64_t));
  csr_ = {graph.vertices(), graph.edges(), offsets};
}

void GraphOnDevice::prepare(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::bfs: {
      // Each vertex is found once, so that a level has no more entries than all lists have parts.
      const std::uint64_t entries = csr_.vertices + csr_.edges / neighbours_an_item + 1;
      distances_ = memory_.allocate<int>(csr_.vertices);
      queue_ = memory_.allocate<Entry>(entries);
      next_ = memory_.allocate<Entry>(entries);
      return;
    }
    case Algorithm::components:
      labels_ = memory_.allocate<Vertex>(csr_.vertices);
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

void GraphOnDevice::bfs(std::uint64_t source) {
  const Device& device = memory_.device();
  run_for_all(device, BfsBegin{distances_}, csr_.vertices);
  memory_.put(distances_ + source, 0);
  std::uint64_t entries = parts_of_list(graph_.degree(source));
  for (std::uint64_t part = 0; part < entries; ++part) {
    memory_.put(queue_ + part, Entry{part} << 32U | source);
  }
  passes_ = 0;
  for (int level = 0; entries > 0; ++level, ++passes_) {
    memory_.put(progress_, Progress{});
    neighbours_.with([&](const auto& from) {
      run_warps(device,
                BfsLevel<std::decay_t<decltype(from)>>{
                    csr_, from, level, distances_, queue_, next_, progress_},
                entries);
    });
    entries = progress_made().found;
    std::swap(queue_, next_);
    if (entries > csr_.vertices / large_level) {
      collect(level + 1);
    }
  }
}

void GraphOnDevice::collect(int level) {
  memory_.put(progress_, Progress{});
  const BfsCollect work{csr_, level, distances_, queue_, &progress_->found};
  run_warps(memory_.device(), work, work.items());
}

void GraphOnDevice::components() {
  const Device& device = memory_.device();
  run_for_all(device, CcBegin{labels_}, csr_.vertices);
  bool changed = true;
  for (passes_ = 0; changed; ++passes_) {
    changed = every_edge(CcHook{csr_.vertices, labels_, progress_}).changed != 0;
    run_for_all(device, CcJump{labels_}, csr_.vertices);
  }
}

void GraphOnDevice::pagerank(unsigned iterations) {
  const Device& device = memory_.device();
  run_for_all(
      device, PageRankBegin{page_rank_, 1 / static_cast<double>(csr_.vertices)}, csr_.vertices);
  for (passes_ = 0; passes_ < iterations; ++passes_) {
    every_edge(PageRankPull{csr_.vertices, page_rank_.shares, page_rank_.sums});
    run_for_all(device, page_rank_, csr_.vertices);
  }
}

template <typename Each>
Progress GraphOnDevice::every_edge(const Each& each) {
  memory_.put(progress_, Progress{});
  neighbours_.with([&](const auto& from) {
    run_warps(memory_.device(),
              EveryEdge<std::decay_t<decltype(from)>, Each>{csr_, from, each, progress_},
              csr_.items());
  });
  return progress_made();
}

// What a kernel counted; it has ended.
Progress GraphOnDevice::progress_made() const {
  neighbours_.check();
  const Progress made = memory_.get(progress_);
  if (made.damaged != 0) {
    throw std::runtime_error(graph_.file().path() + " is damaged: " + std::to_string(made.damaged) +
                             " neighbours are no vertices");
  }
  return made;
}
