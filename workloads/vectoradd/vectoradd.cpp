// The program: C = A + B, all three in files, in three ways.
#include "workloads/arrays/arguments.hpp"
#include "workloads/arrays/tiles.hpp"
#include "workloads/papers/file.hpp"
#include "workloads/vectoradd/vectoradd_kernel.hpp"

#include <hippogriff/array.hpp>
#include <hippogriff/hippogriff.hpp>

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr const char* usage =
    "vectoradd generate FOLDER --count N [--seed N]\n"
    "vectoradd run FOLDER [--mode array|tiled|resident|all] [--device host|cuda:N]\n"
    "              [--cache 64MiB] [--line 16KiB] [--tiles 5] [--warps N] [--check] [--json]";

struct Wish {
  std::string a;
  std::string b;
  std::string c;
  std::string device;
  std::uint64_t count = 0;
  std::uint64_t cache_bytes = 0;
  std::uint32_t line_bytes = 0;
  std::uint64_t tiles = 0;
  std::uint64_t warps = 0;
  bool check = false;
};

struct Moved {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
};

constexpr std::uint64_t piece = 1U << 17U;  // numbers in host memory at a time

int generate(Arguments& words) {
  const std::string folder = words.word(1);
  const std::uint64_t count = words.number({"count", 0, 1, std::uint64_t{1} << 40U, "numbers"});
  const RandomField random(words.number({"seed", 1, 0, no_bound, "of the numbers"}));
  words.refuse_others();
  std::filesystem::create_directories(folder);
  for (const std::uint64_t stream : {0U, 1U}) {
    NewFile made(folder + (stream == 0 ? "/a" : "/b"), O_WRONLY);
    const File& file = made.file();
    std::vector<Number> values;
    for (std::uint64_t first = 0; first < count; first += piece) {
      values.clear();
      for (std::uint64_t i = first; i < std::min(first + piece, count); ++i) {
        values.push_back(random.bits(stream, i));
      }
      file.write(values.data(), values.size() * sizeof(Number), first * sizeof(Number));
    }
    file.sync();
    made.keep();
  }
  return EXIT_SUCCESS;
}

// Piece by piece, by one thread.
void check(const Wish& wish) {
  const File a(wish.a, O_RDONLY);
  const File b(wish.b, O_RDONLY);
  const File c(wish.c, O_RDONLY);
  if (c.size_bytes() != wish.count * sizeof(Number)) {
    throw std::runtime_error("WRONG: " + wish.c + " has " + std::to_string(c.size_bytes()) +
                             " bytes");
  }
  std::array<std::vector<Number>, 3> values;
  values.fill(std::vector<Number>(piece));
  for (std::uint64_t first = 0; first < wish.count; first += piece) {
    const std::uint64_t count = std::min(piece, wish.count - first);
    a.read(values[0].data(), count * sizeof(Number), first * sizeof(Number));
    b.read(values[1].data(), count * sizeof(Number), first * sizeof(Number));
    c.read(values[2].data(), count * sizeof(Number), first * sizeof(Number));
    for (std::uint64_t i = 0; i < count; ++i) {
      if (values[0][i] + values[1][i] != values[2][i]) {
        throw std::runtime_error("WRONG: number " + std::to_string(first + i) + " of " + wish.c);
      }
    }
  }
}

// --- array: threads read lines of A and B, and write lines of C ---

Moved through_arrays(const Wish& wish, const Device& device, Phases& phases) {
  const hippogriff::array_options in = {
      .device = wish.device.c_str(),
      .cache_size = std::max<std::uint64_t>(wish.cache_bytes / 3, wish.line_bytes),
      .line_size = wish.line_bytes,
      .load = "none"};  // lines as threads touch them are what is measured
  hippogriff::array_options out = in;
  out.mode = "w+";
  out.count = wish.count;
  out.io = "direct";  // written once, in order: as the other ways write it
  const hippogriff::array<Number> a(wish.a, in);
  const hippogriff::array<Number> b(wish.b, in);
  hippogriff::array<Number> c(wish.c, out);
  phases.end("open");
  // Few warps beside the lines that C's cache has: more would wait for places anyway.
  const std::uint64_t places = c.view().cache().places.place_count();
  const std::uint64_t warps =
      wish.warps != 0 ? wish.warps : std::max<std::uint64_t>(places / 64, 128);
  const AddThroughArrays add{a.view(), b.view(), c.view(), wish.line_bytes / sizeof(Number), warps};
  run_warps(device, add, add.items());
  phases.end("compute");
  a.check_accesses();
  b.check_accesses();
  c.check_accesses();
  if (device.is_gpu()) {
    flush_on_gpu(c);
  } else {
    c.flush();
  }
  phases.end("flush");
  Moved moved;
  for (const auto& facts : {a.statistics(), b.statistics(), c.statistics()}) {
    moved.read_bytes += facts.read_bytes;
    moved.written_bytes += facts.written_bytes;
  }
  return moved;
}

// --- resident and tiled: by hand, with the transfer runtime ---

// A tile of C, in device memory.
struct Sum {
  hippogriff::DeviceBuffer memory;
  std::optional<hippogriff::Transfer> goes;

  void finish() {
    if (goes) {
      goes->wait();
      goes.reset();
    }
  }
};

class Tiling {
 public:
  Tiling(const Wish& wish, const Device& device, std::uint64_t tiles)
      : device_(device),
        a_(wish.a, O_RDONLY),
        b_(wish.b, O_RDONLY),
        c_(wish.c, O_RDWR | O_CREAT | O_TRUNC),
        bytes_(wish.count * sizeof(Number)),
        tiles_({{a_, {0, bytes_}}, {b_, {0, bytes_}}},
               {parts_of(wish.count, tiles), 2, sizeof(Number)},
               device,
               wish.device),
        sums_(tiles_.shape().slots) {
    options_.device = wish.device;
    for (Sum& sum : sums_) {
      sum.memory = hippogriff::DeviceBuffer(tiles_.shape().elements * sizeof(Number), wish.device);
    }
  }

  // While a tile is added, the next one comes and the one before goes.
  void run(Phases& phases) {
    tiles_.through(tiles_.all(false), [&](const Tile& tile) {
      phases.end("wait_for_input");
      Sum& sum = sums_[tile.slot];
      sum.finish();  // the tile that was here before: its C has gone
      phases.end("wait_for_output");
      auto* const c = static_cast<Number*>(sum.memory.data());
      const std::uint64_t count = tile.elements.end - tile.elements.begin;
      run_for_all(device_, AddInMemory{tile.part<Number>(0), tile.part<Number>(1), c}, count);
      phases.end("compute");
      sum.goes.emplace(hippogriff::recv_async(
          c_.fd(), {c, count * sizeof(Number)}, tile.elements.begin * sizeof(Number), options_));
    });
    for (Sum& sum : sums_) {
      sum.finish();
    }
    c_.sync();
    phases.end("wait_for_output");
  }

  [[nodiscard]] Moved moved() const { return {tiles_.cost().read_bytes, bytes_}; }

 private:
  const Device& device_;
  File a_;
  File b_;
  File c_;
  std::uint64_t bytes_;  // of each
  Tiles tiles_;
  hippogriff::Options options_;
  std::vector<Sum> sums_;
};

std::string run_mode(const Wish& wish, const Device& device, const std::string& mode) {
  Phases phases;
  Moved moved;
  if (mode == "array") {
    moved = through_arrays(wish, device, phases);
  } else {
    Tiling tiling(wish, device, mode == "tiled" ? std::min(wish.tiles, wish.count) : 1);
    phases.end("open");
    tiling.run(phases);
    moved = tiling.moved();
  }
  double total = 0;
  for (const auto& [phase, seconds] : phases.seconds()) {
    total += seconds;
  }
  if (wish.check) {
    check(wish);
    phases.end("check");
  }
  const std::uint64_t bytes = wish.count * sizeof(Number);
  JsonObject json;
  json.text("mode", mode).seconds(phases).number("total_seconds", total);
  json.number("needed_bytes", 2 * bytes).number("read_bytes", moved.read_bytes);
  json.number("amplification",
              static_cast<double>(moved.read_bytes) / static_cast<double>(2 * bytes));
  json.number("needed_written_bytes", bytes).number("written_bytes", moved.written_bytes);
  json.number("gb_per_second", static_cast<double>(3 * bytes) / 1e9 / total);
  return json.raw("checked", wish.check ? "true" : "false").str();
}

Wish read_wish(Arguments& words) {
  Wish wish;
  const std::string folder = words.word(1);
  wish.a = folder + "/a";
  wish.b = folder + "/b";
  wish.c = folder + "/c";
  wish.device = resolve_device(words.text("device", ""));
  wish.cache_bytes = words.number({"cache", 64U << 20U, 512, no_bound, "bytes, of all three"});
  wish.line_bytes = static_cast<std::uint32_t>(
      words.number({"line", line_bytes_max, 512, line_bytes_max, "bytes, a power of two"}));
  wish.tiles = words.number({"tiles", 5, 1, 1'000'000, "of the tiled way"});
  wish.warps = words.number({"warps", 0, 0, 1U << 20U, "of a GPU, at once; 0: as the cache says"});
  wish.check = words.given("check");
  if (!std::has_single_bit(wish.line_bytes)) {
    throw std::invalid_argument("--line is a power of two, not " + std::to_string(wish.line_bytes));
  }
  if (wish.device == "host" && wish.warps != 0) {
    throw std::invalid_argument("--warps is for GPUs");
  }
  return wish;
}

// A and B must be as long as each other, and numbers.
std::uint64_t checked_count(const Wish& wish) {
  const std::uint64_t a = File(wish.a, O_RDONLY).size_bytes();
  const std::uint64_t b = File(wish.b, O_RDONLY).size_bytes();
  if (a != b || a == 0 || a % sizeof(Number) != 0) {
    throw std::runtime_error(wish.a + " has " + std::to_string(a) + " bytes, " + wish.b + " " +
                             std::to_string(b) + ": not as many numbers");
  }
  return a / sizeof(Number);
}

int run(Arguments& words) {
  Wish wish = read_wish(words);
  const std::vector<std::string> modes =
      chosen_modes(words.text("mode", "array"), {"array", "tiled", "resident"});
  const bool as_json = words.given("json");
  words.refuse_others();
  wish.count = checked_count(wish);
  const hippogriff::Runtime runtime;
  const std::unique_ptr<Device> device = open_device(wish.device);
  std::vector<std::string> runs;
  for (const std::string& mode : modes) {
    runs.push_back(run_mode(wish, *device, mode));
    if (!as_json) {
      print_line(runs.back());
    }
  }
  if (as_json) {
    JsonObject json;
    json.text("program", "vectoradd").text("device", wish.device).number("count", wish.count);
    json.number("cache_bytes", wish.cache_bytes).number("tiles", wish.tiles);
    json.number("line_bytes", std::uint64_t{wish.line_bytes}).number("warps", wish.warps);
    print_line(json.raw("runs", json_list(runs)).str());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return array_program_main(argc, argv, {"vectoradd", usage, generate, run, {}});
}
