// Reads the command line, runs what it says, and tells where the time went.
#include "workloads/papers/program.hpp"

#include "workloads/papers/movement.hpp"
#include "workloads/papers/pipeline.hpp"
#include "workloads/papers/usage.hpp"

#include <hippogriff/hippogriff.h>

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace {

constexpr int status_wrong = 1;
constexpr int status_usage = 2;
constexpr int status_no_memory = 3;
constexpr std::uint64_t default_seed = 2016;

// hippogriff with the device that is meant where a call names none.
class Session {
 public:
  explicit Session(const std::string& device) {
    // No other thread runs yet.
    setenv("HIPPOGRIFF_DEVICE", device.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
    if (hippogriff_init() != HIPPOGRIFF_OK) {
      throw_hippogriff_error();
    }
  }

  ~Session() { hippogriff_deinit(); }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

struct CommandLine {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> options;
  bool json = false;
  bool send_first = false;
  bool help = false;
};

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      line.json = true;
    } else if (word == "--send-first") {
      line.send_first = true;
    } else if (word == "--help") {
      line.help = true;
    } else if (word.starts_with("--") && i + 1 < argc) {
      line.options.emplace_back(word.substr(2), argv[++i]);
    } else if (word.starts_with('-')) {
      throw std::invalid_argument("an option without its value: " + word);
    } else {
      line.words.push_back(word);
    }
  }
  return line;
}

std::string usage_text(const PaperProgram& program) {
  const char* name = program.format.program;
  const std::vector<NumberOption>& numbers = program.format.numbers;
  std::string text = std::string(name) + ": " + program.summary + "\n" + name + " generate FILE " +
                     numbers[0].name + " [--seed N]";
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    text += std::string(" [--") + numbers[i].name + " N]";
  }
  text += std::string("\n") + name +
          " run IN OUT [--device host|cuda:N] [--json] [--send-first]\n"
          "                             through hippogriff; whose first send makes the GPU's "
          "context\n" +
          name +
          " baseline IN OUT [--device host|cuda:N] [--json]   read, malloc, cudaMemcpy, write\n" +
          name +
          " pipelined IN OUT [--device host|cuda:N] [--json] [--threads N] [--piece BYTES]\n" +
          "                             as well as it can be written by hand\n" + name +
          " check IN OUT                                      against a slow oracle";
  for (const NumberOption& each : numbers) {
    text += std::string("\n  ") + each.name + " (" + std::to_string(each.value) + "): " + each.what;
  }
  return text;
}

int generate(const PaperProgram& program, const CommandLine& line) {
  Numbers numbers(program.format.numbers);
  numbers.set(numbers.options()[0].name, parse_size(line.words[2]));
  std::uint64_t seed = default_seed;
  for (const auto& [name, value] : line.options) {
    if (name == "seed") {
      seed = parse_size(value);
    } else {
      numbers.set(name, parse_size(value));
    }
  }
  InputWriter writer(line.words[1], program.format, numbers);
  program.generate(numbers, RandomField(seed), writer);
  writer.finish();
  return EXIT_SUCCESS;
}

std::string number_text(double number) {
  std::array<char, 40> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.9g", number));
  return text.data();
}

// What `run`, `pipelined` and `baseline` are told beside the files.
struct RunOptions {
  std::string device;
  PipelineShape shape;
};

RunOptions run_options(const CommandLine& line) {
  constexpr NumberOption threads{"threads", 0, 1, 256, "that read or write"};
  constexpr NumberOption piece{"piece", 0, 64U << 10U, 64U << 20U, "bytes"};
  RunOptions chosen;
  Numbers numbers({threads, piece});
  std::string device;
  for (const auto& [name, value] : line.options) {
    if (name == "device") {
      device = value;
    } else if (line.words[0] == "pipelined") {
      numbers.set(name, parse_size(value));
    } else {
      throw std::invalid_argument("unknown option: --" + name);
    }
  }
  if (numbers.at("threads") > 0) {
    chosen.shape.threads = static_cast<unsigned>(numbers.at("threads"));
  }
  if (numbers.at("piece") > 0) {
    chosen.shape.piece_bytes = numbers.at("piece");
  }
  if (chosen.shape.piece_bytes % 4096 != 0) {
    throw std::invalid_argument("--piece is a multiple of 4096");
  }
  chosen.device = resolve_device(device);
  return chosen;
}

// A line on standard output, which was all written: a full disk must not look like success.
void print_line(const std::string& line) {
  errno = 0;
  if (std::fputs((line + "\n").c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "write standard output");
  }
}

std::uint64_t bytes_in(const PaperProgram& program, const Input& in) {
  std::uint64_t sum = 0;
  for (const std::uint64_t size : program.format.array_bytes(in.numbers())) {
    sum += size;
  }
  return sum;
}

// The largest of what is moved in one go.
std::size_t largest_move(const PaperProgram& program, const Input& in) {
  std::uint64_t largest = program.output_bytes(in.numbers());
  for (const std::uint64_t size : program.format.array_bytes(in.numbers())) {
    largest = std::max(largest, size);
  }
  return largest;
}

// A run that has ended, and what of its usage the start was.
struct Done {
  const PaperProgram& program;
  const std::string& verb;
  const std::string& device;
  const Job& job;
  Usage at_start;
};

std::string to_json(const Done& done) {
  const Job& job = done.job;
  const Usage usage = usage_now();
  std::string numbers;
  for (const NumberOption& each : job.in.numbers().options()) {
    numbers += (numbers.empty() ? "\"" : ", \"") + std::string(each.name) +
               "\": " + std::to_string(each.value);
  }
  std::string seconds;
  double total = 0;
  for (const auto& [phase, passed] : job.phases.seconds()) {
    seconds += (seconds.empty() ? "\"" : ", \"") + phase + "\": " + number_text(passed);
    total += passed;
  }
  const auto number = [](const char* name, std::uint64_t value) {
    return std::string(", \"") + name + "\": " + std::to_string(value);
  };
  return std::string("{\"program\": \"") + done.program.format.program + R"(", "verb": ")" +
         done.verb + R"(", "device": ")" + done.device + "\"" +
         number("input_bytes", job.in.file().size_bytes()) +
         number("output_bytes", done.program.output_bytes(job.in.numbers())) +
         number("moved_in_bytes", bytes_in(done.program, job.in)) +
         number("moved_out_bytes", done.program.output_bytes(job.in.numbers())) +
         number("device_bytes", job.memory.allocated_bytes()) + R"(, "kernel_bytes": )" +
         number_text(job.cost.bytes) + R"(, "kernel_operations": )" +
         number_text(job.cost.operations) + R"(, "numbers": {)" + numbers + R"(}, "seconds": {)" +
         seconds + R"(}, "total_seconds": )" + number_text(total) + R"(, "usage": )" +
         to_json(usage) + R"(, "usage_at_start": )" + to_json(done.at_start) + R"(, "movement": )" +
         (job.movement == nullptr ? R"({"way": "conventional"})" : job.movement->report()) + "}";
}

std::string to_words(const Done& done) {
  std::string words =
      std::string(done.program.format.program) + " " + done.verb + " on " + done.device + ":";
  for (const auto& [phase, seconds] : done.job.phases.seconds()) {
    std::array<char, 80> text{};
    static_cast<void>(
        std::snprintf(text.data(), text.size(), " %s %.4f s", phase.c_str(), seconds));
    words += text.data();
  }
  return words;
}

int compute(const PaperProgram& program, const CommandLine& line) {
  const std::string& verb = line.words[0];
  const RunOptions options = run_options(line);
  Phases phases;
  const Input in(line.words[1], program.format);
  std::error_code none_there;
  if (std::filesystem::equivalent(line.words[1], line.words[2], none_there)) {
    throw std::runtime_error(line.words[2] + " is the input: name another file for the result");
  }
  const File out(line.words[2], O_RDWR | O_CREAT | O_TRUNC);
  const bool ours = verb == "run";
  const auto session = ours ? std::make_unique<Session>(options.device) : nullptr;
  // Of a GPU this makes the context, which neither program is asked to pay for, unless it sends
  // first.
  const std::unique_ptr<Device> device =
      line.send_first ? open_device_at_use(options.device) : open_device(options.device);
  Workspace memory(*device, ours ? Workspace::Allocator::hippogriff : Workspace::Allocator::device);
  std::unique_ptr<Movement> movement;
  if (ours) {
    movement = std::make_unique<Hippogriff>(memory);
  } else if (verb == "pipelined") {
    movement = std::make_unique<Pipeline>(memory, options.shape, largest_move(program, in));
  }
  Job job{in, out, memory, movement.get(), phases, {}};
  job.phases.end("start");
  const Usage at_start = usage_now();
  movement == nullptr ? program.baseline(job) : program.run(job);
  const Done done{program, verb, options.device, job, at_start};
  print_line(line.json ? to_json(done) : to_words(done));
  return EXIT_SUCCESS;
}

int check(const PaperProgram& program, const CommandLine& line) {
  const Input in(line.words[1], program.format);
  const File out(line.words[2], O_RDONLY);
  const std::uint64_t expected = program.output_bytes(in.numbers());
  Verdict verdict;
  if (out.size_bytes() == expected) {
    verdict = program.check(in, out);
  } else {
    verdict.words = out.path() + " has " + std::to_string(out.size_bytes()) + " bytes instead of " +
                    std::to_string(expected);
  }
  print_line((verdict.correct ? "correct: " : "WRONG: ") + verdict.words);
  return verdict.correct ? EXIT_SUCCESS : status_wrong;
}

int dispatch(const PaperProgram& program, const CommandLine& line) {
  if (line.help) {
    print_line(usage_text(program));
    return EXIT_SUCCESS;
  }
  const std::string verb = line.words.size() == 3 ? line.words[0] : "";
  if (line.send_first && verb != "run") {
    throw std::invalid_argument("--send-first is hippogriff's: it goes with run");
  }
  if (verb == "generate") {
    return generate(program, line);
  }
  if (verb == "run" || verb == "pipelined" || verb == "baseline") {
    return compute(program, line);
  }
  if (verb == "check" && line.options.empty()) {
    return check(program, line);
  }
  static_cast<void>(std::fprintf(stderr, "%s\n", usage_text(program).c_str()));
  return status_usage;
}

int complain(const PaperProgram& program, const std::exception& error, int status) {
  static_cast<void>(std::fprintf(stderr, "%s: %s\n", program.format.program, error.what()));
  return status;
}

}  // namespace

Workspace::~Workspace() {
  for (void* each : allocated_) {
    if (allocator_ == Allocator::device) {
      device_.free(each);
    } else {
      hippogriff_free(each);
    }
  }
}

void* Workspace::allocate_bytes(std::size_t size_bytes) {
  allocated_.reserve(allocated_.size() + 1);
  void* memory = nullptr;
  if (allocator_ == Allocator::device) {
    memory = device_.allocate(size_bytes);
  } else if (hippogriff_malloc(nullptr, size_bytes, &memory) != HIPPOGRIFF_OK) {
    throw_hippogriff_error();
  }
  allocated_.push_back(memory);
  count(size_bytes);
  return memory;
}

void throw_hippogriff_error() {
  hippogriff_error error;
  hippogriff_last_error(&error);
  if (error.status == HIPPOGRIFF_OUT_OF_DEVICE_MEMORY) {
    throw NoDeviceMemory(error.message);
  }
  throw std::runtime_error(error.message);
}

int paper_main(int argc, char** argv, const PaperProgram& program) {
  try {
    return dispatch(program, read_command_line(argc, argv));
  } catch (const std::invalid_argument& error) {
    return complain(program, error, status_usage);
  } catch (const NoDeviceMemory& error) {
    return complain(program, error, status_no_memory);
  } catch (const std::exception& error) {
    return complain(program, error, status_wrong);
  }
}
