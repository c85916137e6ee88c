// What a run has found so far, as the JSON document that bench/README.md describes.
#pragma once

#include "transfer/contender.hpp"
#include "transfer/measure.hpp"

#include <string>
#include <vector>

namespace bench {

// All repetitions of one contender in one case.
struct Measurement {
  const Contender* contender = nullptr;
  std::string why_absent;  // it does not take part, or it failed
  std::string verified = "no";
  unsigned planned = 0;
  std::vector<Cost> costs;
  std::vector<double> cached_before;    // share of the source, -1 unknown
  std::vector<nlohmann::json> details;  // what the contender told of each repetition
};

// Median, least and most; of an empty list zeros.
struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};

Spread spread_of(std::vector<double> values);

nlohmann::json to_json(const Case& what, const Measurement& measurement);

// A line for people: contender, median GB/s and its spread, CPU seconds per GB.
std::string to_line(const Case& what, const Measurement& measurement);

// Writes a document under another name and renames it, so that a run that is cut off leaves the
// results it had. Throws std::runtime_error.
void save(const nlohmann::json& document, const std::string& path);

}  // namespace bench
