// The command line of the programs that share a device: numbers by name, and a few switches.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// A number that --NAME sets, with what it is when nothing is said, and its bounds.
struct NumberOption {
  const char* name;
  std::uint64_t value;
  std::uint64_t min;
  std::uint64_t max;
  const char* what;
};

class Options {
 public:
  // `words` without the program's name; `own` are the program's numbers beside those of all
  // programs. Throws std::invalid_argument for what it does not know or is out of bounds.
  Options(const std::vector<std::string_view>& words, const std::vector<NumberOption>& own);

  // The value of a number; std::out_of_range for a name that is none.
  [[nodiscard]] std::uint64_t number(std::string_view name) const;

  // Empty: the first GPU, else the CPU. Else "host" or "cuda:N".
  [[nodiscard]] const std::string& device() const { return device_; }

  [[nodiscard]] bool share() const { return share_; }

  [[nodiscard]] bool check() const { return check_; }

  [[nodiscard]] bool json() const { return json_; }

  [[nodiscard]] bool help() const { return help_; }

  // What --help prints.
  [[nodiscard]] std::string usage(std::string_view program) const;

 private:
  bool read_switch(std::string_view word);

  std::vector<NumberOption> numbers_;
  std::string device_;
  bool share_ = false;
  bool check_ = false;
  bool json_ = false;
  bool help_ = false;
};

// A number with an optional unit: 768MiB, 2GiB, 4KiB, 100. Throws std::invalid_argument.
std::uint64_t parse_size(std::string_view text);
