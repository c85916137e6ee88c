// Opening columns, and trips that look like New York's.
#include "workloads/queries/columns.hpp"

#include "workloads/sharing/random.hpp"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <thread>

namespace {

using Trip = std::array<double, column_names.size()>;

std::string path_of(const std::string& folder, std::size_t column) {
  return folder + "/" + column_names.at(column) + ".f64";
}

// Rounds to hundredths, as the taxis' meters do.
double hundredths(double value) {
  return std::round(value * 100) / 100;
}

// Most trips are short, 1.7 miles in the middle, and some few long. Those are as likely anywhere,
// and more often pay tolls.
Trip trip_at(const TripsWish& wish, std::uint64_t row) {
  Random random(Random(wish.seed).next() + row);
  const bool is_long = random.below(1'000'000) < wish.long_per_million;
  const double tail = -std::log(random.uniform());
  const double distance = hundredths(is_long ? 30 + 8 * tail : std::min(0.3 + 2.1 * tail, 29.99));
  constexpr std::array<double, 4> extras = {0, 0.5, 1, 2.5};
  const double extra = extras.at(random.below(extras.size()));
  const double hail_fee = random.below(100) < 97 ? 0.3 : 0;
  const double tolls = random.below(100) < (is_long ? 60U : 5U) ? 6.12 : 0;
  const double tax = random.below(100) < 98 ? 0.5 : 0;
  const double fare = 2.5 + 2.5 * distance;
  const double tip = random.below(2) == 0 ? 0 : 0.2 * fare;
  return {distance,
          hundredths(fare + tip + extra + hail_fee + tolls + tax),
          extra,
          hail_fee,
          tolls,
          tax};
}

using OutFiles = std::vector<std::unique_ptr<NewFile>>;

void write_block(const TripsWish& wish,
                 const OutFiles& files,
                 std::uint64_t first,
                 std::uint64_t count) {
  std::array<std::vector<double>, column_names.size()> values;
  for (std::uint64_t row = first; row < first + count; ++row) {
    const Trip trip = trip_at(wish, row);
    for (std::size_t column = 0; column < trip.size(); ++column) {
      values.at(column).push_back(trip.at(column));
    }
  }
  for (std::size_t column = 0; column < values.size(); ++column) {
    files[column]->file().write(
        values.at(column).data(), count * sizeof(double), first * sizeof(double));
  }
}

void write_blocks(const TripsWish& wish, const OutFiles& files, std::atomic<std::uint64_t>& next) {
  constexpr std::uint64_t block = 1U << 16U;
  for (std::uint64_t first = next.fetch_add(block); first < wish.rows;
       first = next.fetch_add(block)) {
    write_block(wish, files, first, std::min(block, wish.rows - first));
  }
}

}  // namespace

Columns::Columns(const std::string& folder, std::size_t count) {
  for (std::size_t column = 0; column < count; ++column) {
    files_.push_back(std::make_unique<File>(path_of(folder, column), O_RDONLY));
    const std::uint64_t bytes = files_.back()->size_bytes();
    if (bytes % sizeof(double) != 0 || bytes == 0) {
      throw std::runtime_error(path_of(folder, column) + " is damaged: " + std::to_string(bytes) +
                               " bytes are no float64s");
    }
    if (column > 0 && bytes != rows_ * sizeof(double)) {
      throw std::runtime_error(path_of(folder, column) + " is damaged: it has " +
                               std::to_string(bytes / sizeof(double)) + " rows, " +
                               column_names.front() + " has " + std::to_string(rows_));
    }
    rows_ = bytes / sizeof(double);
  }
}

void generate_trips(const std::string& folder, const TripsWish& wish) {
  std::filesystem::create_directories(folder);
  OutFiles files;
  for (std::size_t column = 0; column < column_names.size(); ++column) {
    files.push_back(std::make_unique<NewFile>(path_of(folder, column), O_WRONLY));
  }
  std::vector<std::exception_ptr> failures(std::max(1U, std::thread::hardware_concurrency()));
  std::atomic<std::uint64_t> next = 0;
  std::vector<std::jthread> threads;
  for (std::exception_ptr& failure : failures) {
    threads.emplace_back([&] {
      try {
        write_blocks(wish, files, next);
      } catch (...) {
        failure = std::current_exception();
      }
    });
  }
  threads.clear();
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
  for (const auto& file : files) {
    file->file().sync();
  }
  for (const auto& file : files) {
    file->keep();
  }
}
