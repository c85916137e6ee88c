// Small synchronous operations at random offsets: the time of each, hippogriff's beside others'.
#pragma once

#include "transfer/contender.hpp"

namespace bench {

struct LatencyPlan {
  const Place* place = nullptr;
  Direction direction = Direction::send;
  State state =
      State::cached;  // of the whole source file; cold files are dropped before each block
  std::uint64_t size = 4096;
  std::uint64_t file_size = 0;
  unsigned operations = 1000;  // of each contender, in blocks of 100 that take turns
};

// One result object per contender: percentiles in seconds, verification. Throws std::exception.
nlohmann::json measure_latency(const Bench& bench, const LatencyPlan& plan);

}  // namespace bench
