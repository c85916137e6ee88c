// Reads the command line, runs what it says, and tells where the time went.
#include "workloads/papers/program.hpp"

#include <hippogriff/hippogriff.h>

#include <fcntl.h>

#include <array>
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
};

CommandLine read_command_line(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--json") {
      line.json = true;
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

void print_usage(const PaperProgram& program) {
  const char* name = program.format.program;
  const std::vector<NumberOption>& numbers = program.format.numbers;
  std::string text = std::string(name) + ": " + program.summary + "\n" + name + " generate FILE " +
                     numbers[0].name + " [--seed N]";
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    text += std::string(" [--") + numbers[i].name + " N]";
  }
  text += std::string("\n") + name +
          " run IN OUT [--device host|cuda:N] [--json]       through hippogriff\n" + name +
          " baseline IN OUT [--device host|cuda:N] [--json]  read, malloc, cudaMemcpy, write\n" +
          name + " check IN OUT                                     against a slow oracle\n";
  for (const NumberOption& each : numbers) {
    text += std::string("  ") + each.name + " (" + std::to_string(each.value) + "): " + each.what +
            "\n";
  }
  static_cast<void>(std::fputs(text.c_str(), stderr));
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
  program.generate(numbers, RandomField(seed), InputWriter(line.words[1], program.format, numbers));
  return EXIT_SUCCESS;
}

std::string number_text(double number) {
  std::array<char, 40> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.9g", number));
  return text.data();
}

std::string to_json(const PaperProgram& program, const std::string& verb, const Job& job) {
  std::string numbers;
  for (const NumberOption& each : job.in.numbers().options()) {
    numbers += (numbers.empty() ? "\"" : ", \"") + std::string(each.name) +
               "\": " + std::to_string(each.value);
  }
  std::string seconds;
  for (const auto& [phase, passed] : job.phases.seconds()) {
    seconds += (seconds.empty() ? "\"" : ", \"") + phase + "\": " + number_text(passed);
  }
  return std::string("{\"program\": \"") + program.format.program + R"(", "verb": ")" + verb +
         R"(", "input_bytes": )" + std::to_string(job.in.file().size_bytes()) +
         R"(, "output_bytes": )" + std::to_string(program.output_bytes(job.in.numbers())) +
         R"(, "kernel_bytes": )" + number_text(job.cost.bytes) + R"(, "kernel_operations": )" +
         number_text(job.cost.operations) + R"(, "numbers": {)" + numbers + R"(}, "seconds": {)" +
         seconds + "}}";
}

std::string device_of(const CommandLine& line) {
  std::string device;
  for (const auto& [name, value] : line.options) {
    if (name != "device") {
      throw std::invalid_argument("unknown option: --" + name);
    }
    device = value;
  }
  return resolve_device(device);
}

int compute(const PaperProgram& program, const CommandLine& line) {
  const std::string& verb = line.words[0];
  const std::string name = device_of(line);
  Phases phases;
  const Input in(line.words[1], program.format);
  std::error_code none_there;
  if (std::filesystem::equivalent(line.words[1], line.words[2], none_there)) {
    throw std::runtime_error(line.words[2] + " is the input: name another file for the result");
  }
  const File out(line.words[2], O_RDWR | O_CREAT | O_TRUNC);
  // Of a GPU this makes the context, which neither program is asked to pay for.
  const std::unique_ptr<Device> device = open_device(name);
  const bool conventional = verb == "baseline";
  const auto session = conventional ? nullptr : std::make_unique<Session>(name);
  Workspace memory(*device,
                   conventional ? Workspace::Allocator::device : Workspace::Allocator::hippogriff);
  Job job{in, out, memory, phases, {}};
  job.phases.end("start");
  conventional ? program.baseline(job) : program.run(job);
  if (line.json) {
    std::printf("%s\n", to_json(program, verb, job).c_str());
    return EXIT_SUCCESS;
  }
  std::printf("%s %s on %s:", program.format.program, verb.c_str(), name.c_str());
  for (const auto& [phase, seconds] : job.phases.seconds()) {
    std::printf(" %s %.4f s", phase.c_str(), seconds);
  }
  std::printf("\n");
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
  std::printf("%s: %s\n", verdict.correct ? "correct" : "WRONG", verdict.words.c_str());
  return verdict.correct ? EXIT_SUCCESS : status_wrong;
}

int dispatch(const PaperProgram& program, const CommandLine& line) {
  const std::string verb = line.words.size() == 3 ? line.words[0] : "";
  if (verb == "generate") {
    return generate(program, line);
  }
  if (verb == "run" || verb == "baseline") {
    return compute(program, line);
  }
  if (verb == "check" && line.options.empty()) {
    return check(program, line);
  }
  print_usage(program);
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
