// Measurements as JSON and as lines.
#include "transfer/results.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace bench {

namespace {

std::vector<double> rates_gb(const Case& what, const Measurement& measurement) {
  std::vector<double> rates;
  for (const Cost& cost : measurement.costs) {
    rates.push_back(static_cast<double>(what.size) * 1e-9 / cost.seconds);
  }
  return rates;
}

std::vector<double> cpu_per_gb(const Case& what, const Measurement& measurement) {
  std::vector<double> values;
  for (const Cost& cost : measurement.costs) {
    values.push_back(cost.cpu_seconds / (static_cast<double>(what.size) * 1e-9));
  }
  return values;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

nlohmann::json to_json(const Case& what, const Measurement& measurement) {
  nlohmann::json result = {{"direction", direction_name(what.direction)},
                           {"filesystem", what.place->filesystem},
                           {"directory", what.place->directory},
                           {"state", state_name(what.state)},
                           {"size_bytes", what.size},
                           {"contender", measurement.contender->name()},
                           {"parameters", measurement.contender->parameters()},
                           {"planned_repetitions", measurement.planned}};
  if (!measurement.why_absent.empty()) {
    result["why_absent"] = measurement.why_absent;
  }
  if (measurement.costs.empty()) {
    return result;
  }
  result["verified"] = measurement.verified;
  for (std::size_t i = 0; i < measurement.costs.size(); ++i) {
    const Cost& cost = measurement.costs[i];
    nlohmann::json repetition = {{"seconds", cost.seconds},
                                 {"cpu_seconds", cost.cpu_seconds},
                                 {"resident_growth_bytes", cost.growth.total_bytes},
                                 {"anonymous_growth_bytes", cost.growth.anonymous_bytes},
                                 {"file_growth_bytes", cost.growth.file_bytes},
                                 {"shared_growth_bytes", cost.growth.shared_bytes},
                                 {"kept_growth_bytes", cost.kept_growth_bytes},
                                 {"cached_before", measurement.cached_before[i]}};
    if (!measurement.details[i].is_null()) {
      repetition["detail"] = measurement.details[i];
    }
    result["repetitions"].push_back(repetition);
  }
  const Spread rate = spread_of(rates_gb(what, measurement));
  result["summary"] = {
      {"gb_per_second_median", rate.median},
      {"gb_per_second_min", rate.min},
      {"gb_per_second_max", rate.max},
      {"cpu_seconds_per_gb_median", spread_of(cpu_per_gb(what, measurement)).median}};
  return result;
}

std::string to_line(const Case& what, const Measurement& measurement) {
  const Spread rate = spread_of(rates_gb(what, measurement));
  std::array<char, 256> line{};
  const std::string parameters =
      measurement.contender->parameters().empty() ? "" : measurement.contender->parameters().dump();
  std::snprintf(line.data(),
                line.size(),
                "  %-22s %7.2f GB/s (%.2f to %.2f, %zu runs)  %.3f CPU s/GB  %s",
                measurement.contender->name().c_str(),
                rate.median,
                rate.min,
                rate.max,
                measurement.costs.size(),
                spread_of(cpu_per_gb(what, measurement)).median,
                parameters.c_str());
  return line.data();
}

void save(const nlohmann::json& document, const std::string& path) {
  const std::string part = path + ".part";
  std::ofstream file(part);
  file << document.dump(1) << '\n';
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write " + part);
  }
  std::filesystem::rename(part, path);
}

}  // namespace bench
