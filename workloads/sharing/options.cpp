// Reading the command line: every word is known or refused.
#include "workloads/sharing/options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <stdexcept>
#include <utility>

namespace {

constexpr std::uint64_t no_bound = std::numeric_limits<std::uint64_t>::max();

const std::vector<NumberOption>& numbers_of_all() {
  static const std::vector<NumberOption> numbers = {
      {"memory", 0, 0, std::uint64_t{1} << 50U, "bytes of device memory; 0: what the data takes"},
      {"checks", 200, 1, no_bound, "the most parts of the answer that --check compares"},
      {"seed", 2021, 0, no_bound, "of the input"},
      {"timeout", 3600, 0, 1'000'000, "seconds that --share waits for memory"},
      {"priority", 0, 0, 1'000'000, "of --share; a larger number comes later"},
  };
  return numbers;
}

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, unsigned>, 4> units = {
      {{"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}}};
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const auto* unit = std::find_if(
      units.begin(), units.end(), [&](const auto& each) { return each.first == rest; });
  if (error != std::errc() || unit == units.end() || number > (no_bound >> unit->second)) {
    throw std::invalid_argument("not a number or size: " + std::string(text));
  }
  return number << unit->second;
}

Options::Options(const std::vector<std::string_view>& words, const std::vector<NumberOption>& own)
    : numbers_(own) {
  numbers_.insert(numbers_.end(), numbers_of_all().begin(), numbers_of_all().end());
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (read_switch(words[i])) {
      continue;
    }
    const auto option = std::find_if(numbers_.begin(), numbers_.end(), [&](const auto& each) {
      return words[i] == std::string("--") + each.name;
    });
    const bool known = option != numbers_.end() || words[i] == "--device";
    if (!known || i + 1 == words.size()) {
      throw std::invalid_argument((known ? "a value is missing after " : "unknown option: ") +
                                  std::string(words[i]));
    }
    const std::string_view value = words[++i];
    if (option == numbers_.end()) {
      device_ = value;
      continue;
    }
    option->value = parse_size(value);
    if (option->value < option->min || option->value > option->max) {
      throw std::invalid_argument(std::string("--") + option->name + " is from " +
                                  std::to_string(option->min) + " to " +
                                  std::to_string(option->max) + ", not " + std::string(value));
    }
  }
}

bool Options::read_switch(std::string_view word) {
  share_ = share_ || word == "--share";
  check_ = check_ || word == "--check";
  json_ = json_ || word == "--json";
  help_ = help_ || word == "--help";
  return word == "--share" || word == "--check" || word == "--json" || word == "--help";
}

std::uint64_t Options::number(std::string_view name) const {
  const auto option = std::find_if(
      numbers_.begin(), numbers_.end(), [&](const auto& each) { return name == each.name; });
  if (option == numbers_.end()) {
    throw std::out_of_range("no option of that name: " + std::string(name));
  }
  return option->value;
}

std::string Options::usage(std::string_view program) const {
  std::string text = "usage: " + std::string(program) +
                     " [--device host|cuda:N] [--share] [--check] [--json] [--NAME VALUE…]\n";
  for (const NumberOption& each : numbers_) {
    text += std::string("  --") + each.name + " (" + std::to_string(each.value) +
            "): " + each.what + "\n";
  }
  return text;
}
