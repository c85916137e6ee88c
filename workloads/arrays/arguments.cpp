// Command lines, JSON, and the main of the array programs.
#include "workloads/arrays/arguments.hpp"

#include "workloads/sharing/device.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <system_error>

namespace {

constexpr int status_wrong = 1;
constexpr int status_usage = 2;
constexpr int status_no_memory = 3;

std::string member(std::string_view name) {
  return "\"" + std::string(name) + "\": ";
}

std::string number_text(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  std::array<char, 40> text{};
  static_cast<void>(std::snprintf(text.data(), text.size(), "%.9g", value));
  return text.data();
}

int tell(const char* name, const std::exception& error, int status) {
  static_cast<void>(std::fprintf(stderr, "%s: %s\n", name, error.what()));
  return status;
}

}  // namespace

Arguments::Arguments(int argc, char** argv, std::span<const std::string_view> switches) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      words_.emplace_back(word);
      continue;
    }
    const std::string_view name = word.substr(2);
    const bool alone = std::find(switches.begin(), switches.end(), name) != switches.end();
    if (!alone && i + 1 == argc) {
      throw std::invalid_argument("a value is missing after " + std::string(word));
    }
    options_.emplace_back(name, alone ? "" : argv[++i]);
  }
}

std::string Arguments::word(std::size_t index) const {
  return index < words_.size() ? words_[index] : "";
}

std::string Arguments::text(std::string_view name, std::string_view otherwise) {
  const auto found = std::find_if(
      options_.begin(), options_.end(), [&](const auto& each) { return each.first == name; });
  if (found == options_.end()) {
    return std::string(otherwise);
  }
  std::string value = found->second;
  options_.erase(found);
  return value;
}

std::uint64_t Arguments::number(const NumberOption& option) {
  const std::string words = text(option.name, "");
  const std::uint64_t value = words.empty() ? option.value : parse_size(words);
  if (value < option.min || value > option.max) {
    throw std::invalid_argument(std::string("--") + option.name + " (" + option.what +
                                ") is from " + std::to_string(option.min) + " to " +
                                std::to_string(option.max) + ", not " + std::to_string(value));
  }
  return value;
}

bool Arguments::given(std::string_view name) {
  const std::size_t before = options_.size();
  static_cast<void>(text(name, ""));
  return options_.size() != before;
}

void Arguments::refuse_others() const {
  if (!options_.empty()) {
    throw std::invalid_argument("unknown option, or given twice: --" + options_[0].first);
  }
}

JsonObject& JsonObject::text(std::string_view name, std::string_view value) {
  return raw(name, "\"" + std::string(value) + "\"");
}

JsonObject& JsonObject::number(std::string_view name, std::uint64_t value) {
  return raw(name, std::to_string(value));
}

JsonObject& JsonObject::number(std::string_view name, double value) {
  return raw(name, number_text(value));
}

JsonObject& JsonObject::raw(std::string_view name, const std::string& json) {
  members_ += (members_.empty() ? "" : ", ") + member(name) + json;
  return *this;
}

JsonObject& JsonObject::seconds(const Phases& phases) {
  JsonObject parts;
  for (const auto& [phase, seconds] : phases.seconds()) {
    parts.number(phase, seconds);
  }
  return raw("seconds", parts.str());
}

JsonObject& JsonObject::add(const JsonObject& others) {
  members_ += (members_.empty() || others.members_.empty() ? "" : ", ") + others.members_;
  return *this;
}

std::string json_list(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) {
    list += (list.empty() ? "" : ",\n  ") + item;
  }
  return "[" + list + "]";
}

std::vector<std::string> chosen_modes(const std::string& words,
                                      std::initializer_list<std::string_view> all) {
  std::vector<std::string> chosen;
  if (words == "all") {
    chosen.assign(all.begin(), all.end());
    return chosen;
  }
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find(',', begin), words.size());
    chosen.push_back(words.substr(begin, end - begin));
    if (std::find(all.begin(), all.end(), chosen.back()) == all.end()) {
      throw std::invalid_argument("no such mode: " + chosen.back());
    }
    begin = end + 1;
  }
  return chosen;
}

void print_line(const std::string& line) {
  if (std::puts(line.c_str()) < 0 || std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "write standard output");
  }
}

int array_program_main(int argc, char** argv, const ArrayProgram& program) {
  try {
    const std::span words_given(argv, static_cast<std::size_t>(argc));
    const bool asked =
        std::ranges::find(words_given, std::string_view("--help")) != words_given.end();
    if (argc < 2 || asked) {
      print_line(program.usage);
      return asked ? EXIT_SUCCESS : status_usage;
    }
    std::vector<std::string_view> switches{"check", "json"};
    switches.insert(switches.end(), program.switches.begin(), program.switches.end());
    Arguments words(argc, argv, switches);
    const std::string verb = words.word_count() == 2 ? words.word(0) : "";
    if (verb == "generate") {
      return program.generate(words);
    }
    if (verb == "run") {
      return program.run(words);
    }
    throw std::invalid_argument(std::string("what is to be done?\n") + program.usage);
  } catch (const std::invalid_argument& error) {
    return tell(program.name, error, status_usage);
  } catch (const NoDeviceMemory& error) {
    return tell(program.name, error, status_no_memory);
  } catch (const std::exception& error) {
    return tell(program.name, error, status_wrong);
  }
}
