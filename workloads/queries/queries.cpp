// The program: makes trips, and asks what drivers make a mile on long ones, in each of the modes.
#include "workloads/arrays/arguments.hpp"
#include "workloads/arrays/stored.hpp"
#include "workloads/arrays/tiles.hpp"
#include "workloads/papers/program.hpp"
#include "workloads/queries/columns.hpp"
#include "workloads/queries/queries_kernel.hpp"

#include <hippogriff/hippogriff.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr double tolerance = 1e-9;  // relative: sums come in another order
constexpr const char* usage =
    "queries generate FOLDER --rows N [--long-per-million 300] [--seed N]\n"
    "queries run FOLDER [--query 0..5|all] [--mode array|resident|zero-copy|tiled|all]\n"
    "            [--device host|cuda:N] [--miles 30] [--cache 64MiB] [--line 4KiB]\n"
    "            [--scan-line 64KiB] [--wanted 16777216] [--tile 32MiB] [--check] [--json]";

struct Wish {
  std::vector<std::size_t> queries;
  std::vector<std::string> modes;
  std::string device;
  std::uint64_t cache_bytes = 0;
  std::uint32_t line_bytes = 0;
  std::uint32_t scan_line_bytes = 0;  // of the column that is read as a whole
  std::uint64_t tile_bytes = 0;       // of all columns together, at most
  std::uint64_t wanted_at_once = 0;   // trips, before what others' columns have of them is read
  double miles = 0;
  bool check = false;
  bool json = false;
};

struct Answer {
  std::uint64_t rows = 0;  // that are long
  double miles = 0;
  double dollars_a_mile = 0;  // of all of them, added up
};

Wish read_wish(Arguments& words) {
  Wish wish;
  const std::string query = words.text("query", "all");
  for (std::size_t i = 0; i <= dependent_max; ++i) {
    if (query == "all" || query == std::to_string(i)) {
      wish.queries.push_back(i);
    }
  }
  if (wish.queries.empty()) {
    throw std::invalid_argument("--query is 0 to 5 or all, not " + query);
  }
  wish.modes =
      chosen_modes(words.text("mode", "array"), {"array", "resident", "zero-copy", "tiled"});
  wish.device = resolve_device(words.text("device", ""));
  wish.cache_bytes = words.number({"cache", 64U << 20U, 512, no_bound, "bytes, of all columns"});
  wish.line_bytes = static_cast<std::uint32_t>(
      words.number({"line", 4096, 512, 1U << 20U, "bytes, a power of two"}));
  wish.scan_line_bytes = static_cast<std::uint32_t>(
      words.number({"scan-line", 64U << 10U, 512, 1U << 20U, "bytes, a power of two"}));
  wish.tile_bytes = tile_bytes_wish(words);
  wish.wanted_at_once = words.number(
      {"wanted", std::uint64_t{1} << 24U, 1, std::uint64_t{1} << 40U, "trips on the list"});
  wish.miles = static_cast<double>(words.number({"miles", 30, 1, 1'000'000, "of a long trip"}));
  wish.check = words.given("check");
  wish.json = words.given("json");
  words.refuse_others();
  return wish;
}

// What is read as a whole comes in longer lines: as few requests as possible. But there must be
// enough of them for all warps, or lines leave the cache before they are read to their end.
std::uint32_t scan_line(const Wish& wish, std::uint64_t cache_bytes) {
  constexpr std::uint64_t lines_min = 512;
  std::uint32_t line_bytes = wish.scan_line_bytes;
  while (line_bytes > wish.line_bytes && cache_bytes / line_bytes < lines_min) {
    line_bytes /= 2;
  }
  return std::max(line_bytes, wish.line_bytes);
}

// Column by column, a piece at a time, as plainly as it can be.
Answer oracle(const Columns& columns, const Wish& wish) {
  constexpr std::uint64_t piece = 1U << 17U;
  Answer answer;
  std::vector<std::vector<double>> values(columns.count(), std::vector<double>(piece));
  for (std::uint64_t first = 0; first < columns.rows(); first += piece) {
    const std::uint64_t count = std::min(piece, columns.rows() - first);
    for (std::size_t i = 0; i < values.size(); ++i) {
      columns.file(i).read(values[i].data(), count * sizeof(double), first * sizeof(double));
    }
    for (std::uint64_t row = 0; row < count; ++row) {
      const double distance = values[0][row];
      if (!(distance >= wish.miles)) {
        continue;
      }
      ++answer.rows;
      answer.miles += distance;
      double dollars = values.size() > 1 ? values[1][row] : 0;
      for (std::size_t i = 2; i < values.size(); ++i) {
        dollars -= values[i][row];
      }
      answer.dollars_a_mile += dollars / distance;
    }
  }
  return answer;
}

bool close_to(double one, double other) {
  return one == other ||
         std::abs(one - other) <= tolerance * std::max(std::abs(one), std::abs(other));
}

using Stored = std::vector<std::unique_ptr<StoredData<double>>>;

// Asks for what kernels take, which is the same type for all columns.
template <typename Source>
class Asking {
 public:
  Asking(std::vector<Source> columns, const Wish& wish, Workspace& memory)
      : columns_(std::move(columns)),
        miles_(wish.miles),
        room_(columns_.size() > 1 ? std::min(columns_[0].size(), wish.wanted_at_once) : 0),
        memory_(memory),
        wanted_(room_ != 0 ? memory.allocate<Wanted>(room_) : nullptr),
        findings_(memory.allocate<Findings>(1)) {}

  // Scans as many rows at once as probably find room on the list. Where they do not, those before
  // are looked up first, or fewer are scanned.
  Answer ask() {
    const std::uint64_t rows = columns_[0].size();
    std::uint64_t count = room_ == 0 ? rows : room_;
    for (std::uint64_t first = 0; first < rows;) {
      count = std::min(count, rows - first);
      const Findings now = scan({first, first + count});
      if (room_ == 0 || now.rows <= room_) {
        found_ = now;
        first += count;
        if (found_.rows > room_ / 2) {
          look_up();
        }
        count = rows_that_fit(first);
      } else if (found_.rows != 0) {
        look_up();
      } else {
        count /= 2;
      }
    }
    look_up();
    return answer_;
  }

 private:
  [[nodiscard]] Findings scan(const Range& part) {
    memory_.put(findings_, found_);
    const ScanDistances<Source> work{columns_[0], part, miles_, wanted_, room_, findings_};
    run_warps(memory_.device(), work, work.items());
    return memory_.get(findings_);
  }

  // With as many wanted as among the first ones, half of the room is left.
  [[nodiscard]] std::uint64_t rows_that_fit(std::uint64_t scanned) const {
    const std::uint64_t rows = columns_[0].size();
    const std::uint64_t wanted = answer_.rows + found_.rows;
    if (wanted == 0) {
      return rows;
    }
    const double share = static_cast<double>(wanted) / static_cast<double>(scanned);
    const double fit = static_cast<double>(room_ - found_.rows) / 2 / share;
    return fit < static_cast<double>(rows)
               ? std::max<std::uint64_t>(static_cast<std::uint64_t>(fit), 1)
               : rows;
  }

  // What the others' columns have of those on the list, which is empty then.
  void look_up() {
    if (columns_.size() > 1 && found_.rows != 0) {
      DollarsAMile<Source> dollars{{}, 0, wanted_, found_.rows, findings_};
      for (std::size_t i = 1; i < columns_.size(); ++i) {
        dollars.columns[dollars.column_count++] = columns_[i];
      }
      memory_.put(findings_, found_);
      run_warps(memory_.device(), dollars, dollars.items());
      found_ = memory_.get(findings_);
    }
    answer_.rows += found_.rows;
    answer_.miles = found_.miles;
    answer_.dollars_a_mile = found_.dollars_a_mile;
    found_.rows = 0;
  }

  const std::vector<Source> columns_;
  const double miles_;
  const std::uint64_t room_;  // on the list; 0: nobody asks for more than the scanned column has
  Workspace& memory_;
  Wanted* const wanted_;
  Findings* const findings_;
  Findings found_{};  // in what was scanned; its rows are on the list
  Answer answer_;
};

template <typename Source, typename SourceOf>
Answer ask(const Stored& stored, const Wish& wish, Workspace& memory, const SourceOf& source_of) {
  std::vector<Source> columns;
  for (const auto& column : stored) {
    columns.push_back(source_of(*column));
  }
  const Answer answer = Asking<Source>(std::move(columns), wish, memory).ask();
  for (const auto& column : stored) {
    column->check();
  }
  return answer;
}

void tell(JsonObject& json, const Answer& answer, std::size_t query, const Phases& phases) {
  double total = 0;
  for (const auto& [phase, seconds] : phases.seconds()) {
    total += phase == "check" ? 0 : seconds;
  }
  const auto rows = static_cast<double>(answer.rows);
  json.text("query", "Q" + std::to_string(query)).seconds(phases);
  json.number("total_seconds", total).number("wanted_rows", answer.rows);
  json.number("average_miles", answer.rows > 0 ? answer.miles / rows : 0.0);
  if (query > 0) {
    json.number("average_dollars_a_mile", answer.rows > 0 ? answer.dollars_a_mile / rows : 0.0);
  }
}

struct Run {
  const Columns& columns;
  const Wish& wish;
  Device& device;
};

void check(const Run& run, std::size_t query, const Answer& answer) {
  const Answer expected = oracle(run.columns, run.wish);
  if (answer.rows != expected.rows || !close_to(answer.miles, expected.miles) ||
      (query > 0 && !close_to(answer.dollars_a_mile, expected.dollars_a_mile))) {
    throw std::runtime_error("WRONG: the answer to Q" + std::to_string(query));
  }
}

// What a mode found, and what it says of itself.
struct Found {
  Answer answer;
  ReadCost cost;
  JsonObject json;
};

// Where all columns are at hand.
Found look_through(const Run& run, Mode mode, Phases& phases) {
  const Wish& wish = run.wish;
  const std::uint64_t share = wish.cache_bytes / run.columns.count();
  Storing storing{mode,
                  run.device,
                  wish.device,
                  std::max<std::uint64_t>(share, wish.line_bytes),
                  wish.line_bytes};
  Stored stored;
  for (std::size_t i = 0; i < run.columns.count(); ++i) {
    storing.line_bytes = i == 0 ? scan_line(wish, storing.cache_bytes) : wish.line_bytes;
    stored.push_back(
        std::make_unique<StoredData<double>>(storing, run.columns.file(i), run.columns.section()));
  }
  const bool array = stored[0]->is_array();
  phases.end(array ? "open" : "load");
  Workspace memory(run.device, Workspace::Allocator::device);
  Found found;
  found.answer = array ? ask<hippogriff::array_view<double>>(
                             stored, wish, memory, [](const auto& column) { return column.view(); })
                       : ask<PlainData<double>>(stored, wish, memory, [](const auto& column) {
                           return column.plain();
                         });
  phases.end("compute");
  for (const auto& column : stored) {
    found.cost.add(column->cost());
  }
  if (array) {
    found.json.number("scan_line_bytes", std::uint64_t{scan_line(wish, storing.cache_bytes)});
  }
  return found;
}

// All columns as wholes, once, a tile of each at a time: among the rows of a tile there nearly
// always is one that is wanted.
Found go_through_tiles(const Run& run, Phases& phases) {
  const std::size_t count = run.columns.count();
  std::vector<TiledPart> parts;
  for (std::size_t i = 0; i < count; ++i) {
    parts.push_back({run.columns.file(i), run.columns.section()});
  }
  Tiles tiles(std::move(parts),
              tile_shape({run.wish.cache_bytes, run.wish.tile_bytes}, sizeof(double), count),
              run.device,
              run.wish.device);
  phases.end("open");
  Workspace memory(run.device, Workspace::Allocator::device);
  auto* const findings = memory.allocate<Findings>(1);
  memory.put(findings, Findings{});
  tiles.through(tiles.all(false), [&](const Tile& tile) {
    AskTile work{{},
                 static_cast<unsigned>(count),
                 tile.elements.end - tile.elements.begin,
                 run.wish.miles,
                 findings};
    for (std::size_t i = 0; i < count; ++i) {
      work.columns[i] = tile.part<double>(i);
    }
    start_warps(run.device, work, work.items());
  });
  const Findings all = memory.get(findings);
  phases.end("compute");
  Found found{{all.rows, all.miles, all.dollars_a_mile}, tiles.cost(), {}};
  describe(found.json, tiles);
  return found;
}

std::string run_query(const Run& run, std::size_t query, const std::string& mode) {
  Phases phases;
  const Mode chosen = mode_of(mode);
  const Found found =
      chosen == Mode::tiled ? go_through_tiles(run, phases) : look_through(run, chosen, phases);
  if (run.wish.check) {
    check(run, query, found.answer);
    phases.end("check");
  }
  JsonObject json;
  json.text("mode", mode);
  tell(json, found.answer, query, phases);
  json.add(found.json);
  describe(json, found.cost, sizeof(double) * (run.columns.rows() + query * found.answer.rows));
  return json.raw("checked", run.wish.check ? "true" : "false").str();
}

int run(Arguments& words) {
  const std::string folder = words.word(1);
  const Wish wish = read_wish(words);
  const hippogriff::Runtime runtime;
  const std::unique_ptr<Device> device = open_device(wish.device);
  std::vector<std::string> runs;
  std::uint64_t rows = 0;
  for (const std::size_t query : wish.queries) {
    const Columns columns(folder, query + 1);
    rows = columns.rows();
    for (const std::string& mode : wish.modes) {
      runs.push_back(run_query({columns, wish, *device}, query, mode));
      if (!wish.json) {
        print_line(runs.back());
      }
    }
  }
  if (wish.json) {
    JsonObject json;
    json.text("program", "queries").text("device", wish.device).number("rows", rows);
    json.number("cache_bytes", wish.cache_bytes);
    json.number("line_bytes", std::uint64_t{wish.line_bytes});
    print_line(json.raw("runs", json_list(runs)).str());
  }
  return EXIT_SUCCESS;
}

int generate(Arguments& words) {
  TripsWish wish;
  wish.rows = words.number({"rows", 0, 1, std::uint64_t{1} << 40U, "trips"});
  wish.long_per_million =
      words.number({"long-per-million", wish.long_per_million, 0, 1'000'000, "trips of 30 miles"});
  wish.seed = words.number({"seed", wish.seed, 0, no_bound, "of the trips"});
  words.refuse_others();
  generate_trips(words.word(1), wish);
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return array_program_main(argc, argv, {"queries", usage, generate, run, {}});
}
