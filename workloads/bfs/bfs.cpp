// The program: a graph in, levels, distances out.
#include "workloads/bfs/bfs.hpp"

#include "workloads/papers/launch.hpp"
#include "workloads/papers/movement.hpp"

#include <stdexcept>
#include <utility>

namespace {

// Every node has 1 to 2 degree - 1 edges, which lead anywhere; with fewer edges than nodes some
// have none.
void generate(const Numbers& numbers, const RandomField& random, const InputWriter& writer) {
  const std::uint64_t nodes = numbers.at("nodes");
  const std::uint64_t edges = bfs_edges(numbers);
  const std::uint64_t degree = edges / nodes;
  writer.fill<unsigned>(0, [&](std::uint64_t i) {
    const bool inside = i > 0 && i < nodes && degree > 0;
    return static_cast<unsigned>(i * edges / nodes + (inside ? random.bits(0, i) % degree : 0));
  });
  writer.fill<unsigned>(
      1, [&](std::uint64_t i) { return static_cast<unsigned>(random.bits(1, i) % nodes); });
}

int* search(Job& job, const unsigned* first_edge, const unsigned* targets) {
  const Numbers& numbers = job.in.numbers();
  const BfsGraph graph{numbers.at("nodes"), bfs_edges(numbers), first_edge, targets};
  const Device& device = job.memory.device();
  int* distances = job.memory.allocate<int>(graph.nodes);
  auto* queue = job.memory.allocate<unsigned>(graph.nodes);
  auto* next = job.memory.allocate<unsigned>(graph.nodes);
  auto* progress = job.memory.allocate<BfsProgress>(1);
  launch(device,
         BfsBegin{graph.nodes, numbers.at("source"), distances, queue},
         parts_of(graph.nodes, BfsBegin::nodes_a_block));
  std::size_t count = 1;
  for (int level = 0; count > 0; ++level) {
    job.memory.put(progress, BfsProgress{});
    launch(device,
           BfsLevel{graph, level, distances, queue, count, next, progress},
           parts_of(count, BfsLevel::threads));
    const BfsProgress made = job.memory.get(progress);
    if (made.damaged > 0) {
      throw std::runtime_error(job.in.file().path() + " is damaged: at level " +
                               std::to_string(level) + " " + std::to_string(made.damaged) +
                               " edges or lists of edges lie outside the graph");
    }
    count = made.found;
    std::swap(queue, next);
  }
  job.cost.bytes = sizeof(unsigned) *
                   (static_cast<double>(graph.edges) + 5.0 * static_cast<double>(graph.nodes));
  return distances;
}

void baseline(Job& job) {
  const HostArray<unsigned> first_edge = read_array<unsigned>(job, 0);
  const HostArray<unsigned> targets = read_array<unsigned>(job, 1);
  job.phases.end("read");
  const unsigned* d_first_edge = copy_in(job, first_edge);
  const unsigned* d_targets = copy_in(job, targets);
  job.phases.end("copy_in");
  const int* d_distances = search(job, d_first_edge, d_targets);
  job.phases.end("kernels");
  const HostArray<int> distances = copy_out(job, d_distances, job.in.numbers().at("nodes"));
  job.phases.end("copy_out");
  write_array(job, distances);
  job.phases.end("write");
}

void run(Job& job) {
  const auto* d_first_edge = send<unsigned>(job, 0);
  const auto* d_targets = send<unsigned>(job, 1);
  job.phases.end("send");
  int* d_distances = search(job, d_first_edge, d_targets);
  job.phases.end("kernels");
  recv(job, d_distances, job.in.numbers().at("nodes"));
  job.phases.end("recv");
}

}  // namespace

int main(int argc, char** argv) {
  return paper_main(argc,
                    argv,
                    {bfs_format(),
                     "how far the nodes of a graph are from one",
                     bfs_output_bytes,
                     generate,
                     run,
                     baseline,
                     bfs_check});
}
