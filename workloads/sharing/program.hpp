// What a run tells: the answer, its checksum and where the time went; and the main of each program.
#pragma once

#include "workloads/sharing/options.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Seconds by phase. Phases may come again; their times add up.
class Phases {
 public:
  // Counts the time since the last end, or the start, to the phase.
  void end(const std::string& phase);

  [[nodiscard]] const std::vector<std::pair<std::string, double>>& seconds() const {
    return seconds_;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, double>> seconds_;
};

struct Result {
  std::string device;
  std::uint64_t memory_bytes = 0;  // the most device memory held at one time
  std::uint64_t data_bytes = 0;    // what of it the data needs; the rest is only filled
  std::string checksum;
  std::string answer;         // JSON
  std::uint64_t checked = 0;  // how many parts of the answer the oracle confirmed or refused
  std::uint64_t wrong = 0;    // how many of them it refused
  Phases phases;
};

// The device memory to hold: --memory, or what the data takes. Throws std::invalid_argument when
// that is less than the data takes.
std::uint64_t memory_to_hold(const Options& options, std::uint64_t data_bytes);

// Of `count` parts of an answer every how manyth the oracle is asked for: see --checks.
std::uint64_t check_step(const Options& options, std::uint64_t count);

// Reads the options, runs the program and prints its result. Exit status: 0; 1 wrong or failed; 2
// the command line is; 3 there was no device memory.
int run_program(const char* name,
                const std::vector<std::string_view>& words,
                const std::vector<NumberOption>& own,
                Result (*run)(const Options&));

// The result as one JSON object, without a newline.
std::string to_json(const char* name, const Result& result);
