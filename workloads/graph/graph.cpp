// The program: generates graphs, and runs an algorithm over one in each of the modes.
#include "workloads/arrays/arguments.hpp"
#include "workloads/graph/algorithms.hpp"
#include "workloads/graph/generate.hpp"
#include "workloads/sharing/random.hpp"

#include <hippogriff/hippogriff.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <stdexcept>

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr std::array<std::string_view, 1> switches{"top-down"};
constexpr const char* usage =
    "graph generate FILE [--kind kronecker|uniform] [--scale 10] [--edge-factor 16] [--seed N]\n"
    "                    [--memory 4GiB] [--device host|cuda:N]\n"
    "graph run FILE --algorithm bfs|cc|pagerank [--mode array|resident|zero-copy|tiled|all]\n"
    "               [--device host|cuda:N] [--cache 64MiB] [--line 4KiB] [--tile 32MiB]\n"
    "               [--check] [--json] [--source N] [--sources 1] [--top-down] [--iterations 20]";

struct Wish {
  Algorithm algorithm = Algorithm::bfs;
  std::vector<std::string> modes;
  std::string device;
  std::uint64_t cache_bytes = 0;
  std::uint32_t line_bytes = 0;
  std::uint64_t tile_bytes = 0;  // at most
  unsigned iterations = 0;
  std::vector<std::uint64_t> sources;
  bool top_down = false;
  bool check = false;
  bool json = false;
};

const char* name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::bfs:
      return "bfs";
    case Algorithm::components:
      return "cc";
    case Algorithm::pagerank:
      break;
  }
  return "pagerank";
}

Algorithm algorithm_of(const std::string& name) {
  for (const Algorithm each : {Algorithm::bfs, Algorithm::components, Algorithm::pagerank}) {
    if (name == name_of(each)) {
      return each;
    }
  }
  throw std::invalid_argument("--algorithm is bfs, cc or pagerank, not " + name);
}

int generate(Arguments& words) {
  GraphWish wish;
  const std::string kind = words.text("kind", "kronecker");
  if (kind != "kronecker" && kind != "uniform") {
    throw std::invalid_argument("--kind is kronecker or uniform, not " + kind);
  }
  wish.kind = kind == "uniform" ? GraphKind::uniform : GraphKind::kronecker;
  wish.scale = static_cast<unsigned>(
      words.number({"scale", 10, 1, 31, "the number of vertices is two to the power of it"}));
  wish.edge_factor =
      static_cast<unsigned>(words.number({"edge-factor", 16, 1, 1024, "edges of a vertex"}));
  wish.seed = words.number({"seed", wish.seed, 0, no_bound, "of the hash"});
  wish.memory_bytes =
      words.number({"memory", std::uint64_t{4} << 30U, 4096, no_bound, "for neighbours, in bytes"});
  const std::string device = resolve_device(words.text("device", ""));
  words.refuse_others();
  if (device == "host") {
    generate_graph(words.word(1), wish);
  } else {
    generate_graph_on(*open_device(device), device, words.word(1), wish);
  }
  return EXIT_SUCCESS;
}

// BaM's choice: vertices with more than two neighbours, here evenly spread. One where there are
// fewer.
std::vector<std::uint64_t> spread_sources(const GraphFile& graph, std::uint64_t count) {
  std::vector<std::uint64_t> sources;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto from =
        static_cast<std::uint64_t>(static_cast<double>(i) / static_cast<double>(count) *
                                   static_cast<double>(graph.vertices()));
    std::uint64_t vertex = from;
    while (vertex < graph.vertices() && graph.degree(vertex) <= 2) {
      ++vertex;
    }
    if (vertex < graph.vertices() && (sources.empty() || vertex > sources.back())) {
      sources.push_back(vertex);
    }
  }
  return sources.empty() ? std::vector<std::uint64_t>{0} : sources;
}

Wish read_wish(Arguments& words, const GraphFile& graph) {
  Wish wish;
  wish.algorithm = algorithm_of(words.text("algorithm", "bfs"));
  wish.modes =
      chosen_modes(words.text("mode", "array"), {"array", "resident", "zero-copy", "tiled"});
  wish.device = resolve_device(words.text("device", ""));
  wish.cache_bytes = words.number({"cache", 64U << 20U, 512, no_bound, "bytes"});
  wish.line_bytes = static_cast<std::uint32_t>(
      words.number({"line", 4096, 512, 1U << 20U, "bytes, a power of two"}));
  wish.tile_bytes = tile_bytes_wish(words);
  wish.iterations =
      static_cast<unsigned>(words.number({"iterations", 20, 1, 10'000, "of PageRank"}));
  const std::uint64_t sources = words.number({"sources", 1, 1, 10'000, "of searches"});
  const std::uint64_t source = words.number({"source", no_bound, 0, no_bound, "of the search"});
  wish.top_down = words.given("top-down");
  wish.check = words.given("check");
  wish.json = words.given("json");
  words.refuse_others();
  if (source != no_bound && source >= graph.vertices()) {
    throw std::invalid_argument("--source " + std::to_string(source) + " is no vertex: there are " +
                                std::to_string(graph.vertices()));
  }
  wish.sources =
      source == no_bound ? spread_sources(graph, sources) : std::vector<std::uint64_t>{source};
  return wish;
}

// What the oracle says; nothing where nobody asked for it.
class Oracle {
 public:
  Oracle(const GraphFile& graph, const Wish& wish) : graph_(graph) {
    if (!wish.check) {
      return;
    }
    neighbours_.resize(graph.edges());
    graph.file().read(
        neighbours_.data(), graph.neighbours().size_bytes, graph.neighbours().offset_bytes);
    if (std::any_of(neighbours_.begin(), neighbours_.end(), [&](Vertex each) {
          return each >= graph.vertices();
        })) {
      throw std::runtime_error(graph.file().path() + " is damaged: neighbours are no vertices");
    }
    if (wish.algorithm == Algorithm::components) {
      labels_ = components_oracle(graph, neighbours_);
    } else if (wish.algorithm == Algorithm::pagerank) {
      ranks_ = pagerank_oracle(graph, neighbours_, wish.iterations);
    }
  }

  void check_distances(std::uint64_t source, const std::vector<int>& distances) {
    if (distances != bfs_oracle(graph_, neighbours_, source)) {
      throw std::runtime_error("WRONG: distances from " + std::to_string(source));
    }
  }

  void check_labels(const std::vector<Vertex>& labels) const {
    if (labels != labels_) {
      throw std::runtime_error("WRONG: components");
    }
  }

  void check_ranks(const std::vector<double>& ranks) const {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!(std::abs(ranks[i] - ranks_[i]) <= rank_tolerance * ranks_[i])) {
        throw std::runtime_error("WRONG: the rank of " + std::to_string(i));
      }
    }
  }

 private:
  const GraphFile& graph_;
  std::vector<Vertex> neighbours_;
  std::vector<Vertex> labels_;
  std::vector<double> ranks_;
};

// The edges that lists of reached vertices hold: from above a search reads each of them once.
std::uint64_t edges_of_reached(const GraphFile& graph, const std::vector<int>& distances) {
  std::uint64_t edges = 0;
  for (std::uint64_t vertex = 0; vertex < distances.size(); ++vertex) {
    edges += distances[vertex] >= 0 ? graph.degree(vertex) : 0;
  }
  return edges;
}

struct Run {
  Phases phases;
  std::uint64_t edges = 0;  // README.md says which
  unsigned passes = 0;
  Checksum checksum;
};

void search(const GraphFile& graph, const Wish& wish, Oracle& oracle, GraphOnDevice& on, Run& run) {
  for (const std::uint64_t source : wish.sources) {
    on.bfs(source, wish.top_down);
    run.phases.end("compute");
    const std::vector<int> distances = on.distances();
    run.phases.end("results");
    run.passes += on.passes();
    run.edges += edges_of_reached(graph, distances);
    for (const int each : distances) {
      run.checksum.add(static_cast<std::uint64_t>(each));
    }
    if (wish.check) {
      oracle.check_distances(source, distances);
    }
    run.phases.end("check");
  }
}

void go_through(
    const GraphFile& graph, const Wish& wish, const Oracle& oracle, GraphOnDevice& on, Run& run) {
  if (wish.algorithm == Algorithm::components) {
    on.components();
  } else {
    on.pagerank(wish.iterations);
  }
  run.phases.end("compute");
  const std::vector<Vertex> labels =
      wish.algorithm == Algorithm::components ? on.labels() : std::vector<Vertex>{};
  const std::vector<double> ranks =
      wish.algorithm == Algorithm::pagerank ? on.ranks() : std::vector<double>{};
  run.phases.end("results");
  run.passes = on.passes();
  run.edges = graph.edges() * (wish.algorithm == Algorithm::components ? 1 : on.passes());
  for (const Vertex each : labels) {
    run.checksum.add(each);
  }
  if (wish.check && wish.algorithm == Algorithm::components) {
    oracle.check_labels(labels);
  } else if (wish.check) {
    oracle.check_ranks(ranks);
  }
  run.phases.end("check");
}

std::string told(const Run& run,
                 const std::string& mode,
                 const Wish& wish,
                 const Neighbours& neighbours) {
  double total = 0;
  double compute = 0;
  for (const auto& [phase, seconds] : run.phases.seconds()) {
    total += phase == "check" ? 0 : seconds;
    compute += phase == "compute" ? seconds : 0;
  }
  const std::uint64_t needed = run.edges * sizeof(Vertex);
  JsonObject json;
  json.text("mode", mode).seconds(run.phases).number("total_seconds", total);
  json.number("passes", std::uint64_t{run.passes}).number("edges", run.edges);
  json.number("edges_per_second", compute > 0 ? static_cast<double>(run.edges) / compute : 0.0);
  if (neighbours.tiles) {
    describe(json, *neighbours.tiles);
  }
  describe(json, neighbours.tiles ? neighbours.tiles->cost() : neighbours.stored->cost(), needed);
  json.raw("checked", wish.check ? "true" : "false");
  if (wish.algorithm != Algorithm::pagerank) {
    json.text("checksum", run.checksum.text());
  }
  return json.str();
}

std::string run_mode(const GraphFile& graph,
                     const Wish& wish,
                     const std::string& mode,
                     Device& device,
                     Oracle& oracle) {
  Run run;
  const Storing storing{mode_of(mode), device, wish.device, wish.cache_bytes, wish.line_bytes};
  Neighbours neighbours;
  if (storing.mode == Mode::tiled) {
    neighbours.tiles =
        std::make_unique<Tiles>(std::vector<TiledPart>{{graph.file(), graph.neighbours()}},
                                tile_shape({wish.cache_bytes, wish.tile_bytes}, sizeof(Vertex), 1),
                                device,
                                wish.device);
  } else {
    neighbours.stored =
        std::make_unique<StoredData<Vertex>>(storing, graph.file(), graph.neighbours());
  }
  const bool opened = neighbours.tiles || neighbours.stored->is_array();
  run.phases.end(opened ? "open" : "load");
  GraphOnDevice on(graph, device, neighbours);
  on.prepare(wish.algorithm);
  run.phases.end("state");
  if (wish.algorithm == Algorithm::bfs) {
    search(graph, wish, oracle, on, run);
  } else {
    go_through(graph, wish, oracle, on, run);
  }
  return told(run, mode, wish, neighbours);
}

int run(Arguments& words) {
  const GraphFile graph(words.word(1));
  const Wish wish = read_wish(words, graph);
  const hippogriff::Runtime runtime;
  const std::unique_ptr<Device> device = open_device(wish.device);
  Oracle oracle(graph, wish);
  std::vector<std::string> runs;
  for (const std::string& mode : wish.modes) {
    runs.push_back(run_mode(graph, wish, mode, *device, oracle));
    if (!wish.json) {
      print_line(runs.back());
    }
  }
  if (wish.json) {
    JsonObject json;
    json.text("program", "graph").text("algorithm", name_of(wish.algorithm));
    json.text("device", wish.device).number("vertices", graph.vertices());
    json.number("edges", graph.edges()).number("data_bytes", graph.neighbours().size_bytes);
    json.number("cache_bytes", wish.cache_bytes);
    json.number("line_bytes", std::uint64_t{wish.line_bytes});
    print_line(json.raw("runs", json_list(runs)).str());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return array_program_main(argc, argv, {"graph", usage, generate, run, switches});
}
