// Columns of taxi trips in a folder: a file for each, of float64 and nothing else.
#pragma once

#include "workloads/papers/file.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

// In the order in which queries take them in; the first is scanned. Names are the TLC's.
inline constexpr std::array<const char*, 6> column_names = {
    "trip_distance", "total_amount", "extra", "improvement_surcharge", "tolls_amount", "mta_tax"};

// The first columns of a folder, open. They have whole float64 and all the same number of them;
// throws std::runtime_error otherwise, std::system_error for a column that is not there.
class Columns {
 public:
  Columns(const std::string& folder, std::size_t count);

  [[nodiscard]] std::uint64_t rows() const { return rows_; }

  [[nodiscard]] std::size_t count() const { return files_.size(); }

  [[nodiscard]] const File& file(std::size_t column) const { return *files_.at(column); }

  [[nodiscard]] Section section() const { return {0, rows_ * sizeof(double)}; }

 private:
  std::vector<std::unique_ptr<File>> files_;
  std::uint64_t rows_ = 0;
};

struct TripsWish {
  std::uint64_t rows = 0;
  std::uint64_t long_per_million = 300;  // trips of 30 miles and more; in New York 0.03 %
  std::uint64_t seed = 2009;
};

// Makes the folder's columns; the same for a seed, whatever the number of threads. Throws
// std::system_error.
void generate_trips(const std::string& folder, const TripsWish& wish);
