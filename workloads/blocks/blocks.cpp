// The program: random blocks of a file through an array in storage, read or overwritten, each once.
#include "workloads/arrays/arguments.hpp"
#include "workloads/blocks/blocks_kernel.hpp"
#include "workloads/papers/file.hpp"
#include "workloads/papers/program.hpp"
#include "workloads/sharing/random.hpp"

#include <hippogriff/array.hpp>
#include <hippogriff/hippogriff.hpp>

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t block_bytes_max = 64U << 10U;
constexpr const char* usage =
    "blocks generate FILE --size BYTES [--seed N]\n"
    "blocks run FILE [--mode read|write|all] [--device host|cuda:N] [--block 4KiB] [--count N]\n"
    "           [--cache 64MiB] [--io direct|cached|auto] [--warps N] [--ahead N] [--seed N]\n"
    "           [--new-seed N] [--check] [--json]";

struct Wish {
  std::string path;
  std::string device;
  std::string io;
  std::uint64_t block_bytes = 0;
  std::uint64_t blocks = 0;  // of the file
  std::uint64_t count = 0;   // of them that are wanted
  std::uint64_t cache_bytes = 0;
  std::uint64_t warps = 0;
  std::uint64_t ahead = 0;
  std::uint64_t seed = 0;
  std::uint64_t new_seed = 0;
  bool check = false;

  [[nodiscard]] std::uint64_t words_a_block() const { return block_bytes / sizeof(Word); }

  [[nodiscard]] std::uint64_t wanted_bytes() const { return count * block_bytes; }
};

// --- what is in the file ---

constexpr unsigned places_stream = 1;  // of the new seed; stream 0 has the words

NumberOption seed_option() {
  return {"seed", 1, 0, no_bound, "of what the file has"};
}

int generate(Arguments& words) {
  constexpr std::uint64_t piece = 1U << 17U;  // words in memory at a time
  const std::string path = words.word(1);
  const std::uint64_t size = words.number({"size", 0, 512, std::uint64_t{1} << 50U, "bytes"});
  const RandomField random(words.number(seed_option()));
  words.refuse_others();
  if (size % sizeof(Word) != 0) {
    throw std::invalid_argument("--size is a multiple of 8, not " + std::to_string(size));
  }
  NewFile made(path, O_WRONLY);
  std::vector<Word> values;
  for (std::uint64_t first = 0; first < size / sizeof(Word); first += values.size()) {
    values.resize(std::min(piece, size / sizeof(Word) - first));
    for (std::uint64_t i = 0; i < values.size(); ++i) {
      values[i] = random.bits(0, first + i);
    }
    made.file().write(values.data(), values.size() * sizeof(Word), first * sizeof(Word));
  }
  made.file().sync();
  made.keep();
  return EXIT_SUCCESS;
}

// As RandomField begins a stream.
Stream stream_of(std::uint64_t seed, std::uint64_t stream) {
  return {Random(seed ^ (stream << 56U)).next()};
}

// The same order for reads and writes of so many blocks.
Shuffle shuffle_of(const Wish& wish) {
  const std::uint64_t all = std::bit_ceil(wish.blocks);
  const auto bits = static_cast<unsigned>(std::countr_zero(all));
  return {wish.blocks, all - 1, (bits + 1) / 2, Random(wish.blocks).next()};
}

[[noreturn]] void tell_wrong(const std::string& what, const Wish& wish) {
  throw std::runtime_error("WRONG: " + what + " of " + wish.path);
}

// Reads the whole file in order, past the array: every block that was written has what is new,
// every other one what was there.
void check_written(const Wish& wish) {
  const Shuffle shuffle = shuffle_of(wish);
  std::vector<bool> written(wish.blocks);
  for (std::uint64_t item = 0; item < wish.count; ++item) {
    written[shuffle.block(item)] = true;
  }
  const RandomField before(wish.seed);
  const RandomField after(wish.new_seed);
  const File file(wish.path, O_RDONLY);
  const std::uint64_t at_once = std::max<std::uint64_t>((1U << 20U) / wish.block_bytes, 1);
  std::vector<Word> values(at_once * wish.words_a_block());
  for (std::uint64_t block = 0; block < wish.blocks; ++block) {
    const std::uint64_t in_piece = block % at_once;
    if (in_piece == 0) {
      const std::uint64_t count = std::min(at_once, wish.blocks - block);
      file.read(values.data(), count * wish.block_bytes, block * wish.block_bytes);
    }
    const RandomField& field = written[block] ? after : before;
    const std::uint64_t first = written[block]
                                    ? after.bits(places_stream, block) % WriteBlocks::stretches
                                    : block * wish.words_a_block();
    for (std::uint64_t i = 0; i < wish.words_a_block(); ++i) {
      if (values[in_piece * wish.words_a_block() + i] != field.bits(0, first + i)) {
        tell_wrong("block " + std::to_string(block) +
                       (written[block] ? ", which was written," : ", which was not written,"),
                   wish);
      }
    }
  }
}

// --- the runs ---

using BlockArray = hippogriff::array<Word>;

// Memory of a run's kernels, and what they share.
class Job {
 public:
  Job(const Wish& wish, Device& device, const char* mode)
      : wish_(wish),
        memory_(device, Workspace::Allocator::device),
        findings_(memory_.allocate<Findings>(1)),
        array_(wish.path,
               {.mode = mode,
                .device = wish.device.c_str(),
                .cache_size = wish.cache_bytes,
                .line_size = static_cast<std::uint32_t>(wish.block_bytes),
                .count = wish.blocks * wish.words_a_block(),
                .io = wish.io.c_str(),
                .load = "none"}) {  // blocks as threads touch them are what is measured
    memory_.put(findings_, Findings{});
  }

  [[nodiscard]] BlockArray& array() { return array_; }

  [[nodiscard]] bool is_on_gpu() const { return memory_.device().is_gpu(); }

  [[nodiscard]] RandomBlocks blocks() const {
    return {array_.view(),
            shuffle_of(wish_),
            wish_.words_a_block(),
            wish_.count,
            wish_.warps,
            findings_};
  }

  const Word* copy_in(const std::vector<Word>& values) {
    Word* copy = memory_.allocate<Word>(values.size());
    memory_.device().copy_in(copy, values.data(), values.size() * sizeof(Word));
    return copy;
  }

  template <typename Work>
  void run(const Work& work) {
    run_warps(memory_.device(), work, work.items());
    array_.check_accesses();
  }

  // All must have been read, or written, and as they should be.
  void check_findings() const {
    const Findings found = memory_.get(findings_);
    if (found.wrong_blocks != 0) {
      tell_wrong(std::to_string(found.wrong_words) + " words in " +
                     std::to_string(found.wrong_blocks) +
                     " blocks (is --seed that of generate, were blocks written since?)",
                 wish_);
    }
    if (found.blocks != wish_.count) {
      tell_wrong("only " + std::to_string(found.blocks) + " blocks", wish_);
    }
  }

 private:
  const Wish& wish_;
  Workspace memory_;
  Findings* findings_;
  BlockArray array_;
};

void read_blocks(const Wish& wish, Job& job, Phases& phases) {
  // More would throw out what is about to be wanted.
  const std::uint64_t places = job.array().view().cache().places.place_count();
  const ReadBlocks work{job.blocks(), stream_of(wish.seed, 0), std::min(wish.ahead, places / 4)};
  phases.end("open");
  job.run(work);
  phases.end("compute");
}

void write_blocks(const Wish& wish, Job& job, Phases& phases) {
  std::vector<Word> values(WriteBlocks::stretches - 1 + wish.words_a_block());
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    values[i] = RandomField(wish.new_seed).bits(0, i);
  }
  const WriteBlocks work{
      job.blocks(), stream_of(wish.new_seed, places_stream), job.copy_in(values)};
  phases.end("open");
  job.run(work);
  phases.end("compute");
  if (job.is_on_gpu()) {
    flush_on_gpu(job.array());
  } else {
    job.array().flush();
  }
  phases.end("flush");
}

// How the array reads its file, in its own words.
std::string source_of(const BlockArray& array) {
  const std::string told = array.explain();
  const std::size_t name = told.find("\"source\"");
  const std::size_t begin = name == std::string::npos ? name : told.find('"', name + 8);
  if (begin == std::string::npos) {
    return "";
  }
  return told.substr(begin + 1, told.find('"', begin + 1) - begin - 1);
}

void describe(JsonObject& json, const Wish& wish, const hippogriff_array_statistics& facts) {
  const std::uint64_t bytes = wish.wanted_bytes();
  json.number("read_bytes", facts.read_bytes).number("written_bytes", facts.written_bytes);
  json.number("misses", facts.misses).number("overwritten", facts.overwritten);
  json.number("commands", facts.reads + facts.writes);
  json.number(
      "amplification",
      static_cast<double>(facts.read_bytes + facts.written_bytes) / static_cast<double>(bytes));
}

std::string run_mode(const Wish& wish, Device& device, const std::string& mode) {
  const bool reads = mode == "read";
  Phases phases;
  Job job(wish, device, reads ? "r" : "r+");
  (reads ? read_blocks : write_blocks)(wish, job, phases);
  double total = 0;
  double moving = 0;
  for (const auto& [phase, seconds] : phases.seconds()) {
    total += seconds;
    moving += phase == "open" ? 0 : seconds;
  }
  job.check_findings();
  if (wish.check && !reads) {
    check_written(wish);
    phases.end("check");
  }
  JsonObject json;
  json.text("mode", mode).seconds(phases).number("total_seconds", total);
  json.number("blocks_per_second", static_cast<double>(wish.count) / moving);
  json.number("gb_per_second", static_cast<double>(wish.wanted_bytes()) / 1e9 / moving);
  json.number(reads ? "needed_bytes" : "needed_written_bytes", wish.wanted_bytes());
  describe(json, wish, job.array().statistics());
  json.text("source", source_of(job.array()));
  return json.raw("checked", reads || wish.check ? "true" : "false").str();
}

// --- the command line ---

Wish read_wish(Arguments& words) {
  Wish wish;
  wish.path = words.word(1);
  wish.device = resolve_device(words.text("device", ""));
  const bool on_host = wish.device == "host";
  wish.block_bytes = words.number({"block", 4096, 512, block_bytes_max, "bytes, a power of two"});
  wish.count = words.number({"count", 0, 0, no_bound, "of blocks; 0: all, at most 100000"});
  wish.cache_bytes = words.number({"cache", 64U << 20U, 512, no_bound, "bytes"});
  wish.io = words.text("io", "direct");
  wish.warps = words.number({"warps", 0, 0, 1U << 20U, "of a GPU, at once; 0: as many as fit"});
  wish.ahead = words.number(
      {"ahead", on_host ? 512U : 0U, 0, 4096, "blocks that are asked for before they are wanted"});
  wish.seed = words.number(seed_option());
  wish.new_seed = words.number({"new-seed", wish.seed + 1, 0, no_bound, "of what is written"});
  wish.check = words.given("check");
  if (!std::has_single_bit(wish.block_bytes)) {
    throw std::invalid_argument("--block is a power of two, not " +
                                std::to_string(wish.block_bytes));
  }
  if (wish.io != "direct" && wish.io != "cached" && wish.io != "auto") {
    throw std::invalid_argument("--io is direct, cached or auto, not " + wish.io);
  }
  if (wish.new_seed == wish.seed) {
    throw std::invalid_argument("--new-seed is that of what the file has");
  }
  if (on_host && wish.warps != 0) {
    throw std::invalid_argument("--warps is for GPUs");
  }
  wish.cache_bytes = std::max(wish.cache_bytes, wish.block_bytes);
  return wish;
}

void count_blocks(Wish& wish) {
  constexpr std::uint64_t enough = 100'000;
  wish.blocks = File(wish.path, O_RDONLY).size_bytes() / wish.block_bytes;
  if (wish.count == 0) {
    wish.count = std::min(wish.blocks, enough);
  }
  if (wish.count > wish.blocks || wish.blocks == 0) {
    throw std::runtime_error(wish.path + " has " + std::to_string(wish.blocks) + " blocks of " +
                             std::to_string(wish.block_bytes) + " bytes");
  }
}

int run(Arguments& words) {
  Wish wish = read_wish(words);
  const std::vector<std::string> modes =
      chosen_modes(words.text("mode", "read"), {"read", "write"});
  const bool as_json = words.given("json");
  words.refuse_others();
  count_blocks(wish);
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
    json.text("program", "blocks").text("device", wish.device).text("io", wish.io);
    json.number("block_bytes", wish.block_bytes).number("blocks", wish.blocks);
    json.number("count", wish.count).number("cache_bytes", wish.cache_bytes);
    json.number("warps", wish.warps).number("ahead", wish.ahead);
    print_line(json.raw("runs", json_list(runs)).str());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  return array_program_main(argc, argv, {"blocks", usage, generate, run, {}});
}
