// Steps in double, one cell after the other, and what files hold.
#include "workloads/hotspot/hotspot.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace {

constexpr std::uint64_t every_cell_max = 1U << 21U;  // cells times steps
constexpr long patch = 8;
constexpr unsigned patches = 48;

// Cells [top, bottom) x [left, right) of the chip, row by row.
struct Window {
  long top;
  long bottom;
  long left;
  long right;

  [[nodiscard]] long width() const { return right - left; }

  [[nodiscard]] std::size_t cells() const {
    return static_cast<std::size_t>((bottom - top) * width());
  }

  [[nodiscard]] std::size_t at(long row, long column) const {
    return static_cast<std::size_t>((row - top) * width() + (column - left));
  }

  // With `margin` more on every side, as far as the chip goes.
  [[nodiscard]] Window widened(long margin, long rows) const {
    return {std::max(0L, top - margin),
            std::min(rows, bottom + margin),
            std::max(0L, left - margin),
            std::min(rows, right + margin)};
  }
};

std::vector<double> read_window(const Input& in, std::size_t section, const Window& window) {
  const std::uint64_t rows = in.numbers().at("rows");
  std::vector<double> cells;
  cells.reserve(window.cells());
  for (long row = window.top; row < window.bottom; ++row) {
    const std::uint64_t first =
        static_cast<std::uint64_t>(row) * rows + static_cast<std::uint64_t>(window.left);
    for (const float value :
         in.elements<float>(section, first, static_cast<std::size_t>(window.width()))) {
      cells.push_back(value);
    }
  }
  return cells;
}

// One step of a window. Where it ends and the chip does not, a ring is spoiled.
std::vector<double> step(const HotspotPhysics& physics,
                         const Window& window,
                         const std::vector<double>& old,
                         const std::vector<double>& power) {
  std::vector<double> next(old.size());
  for (long row = window.top; row < window.bottom; ++row) {
    for (long column = window.left; column < window.right; ++column) {
      const double here = old[window.at(row, column)];
      const double up = old[window.at(std::max(row - 1, window.top), column)];
      const double down = old[window.at(std::min(row + 1, window.bottom - 1), column)];
      const double left = old[window.at(row, std::max(column - 1, window.left))];
      const double right = old[window.at(row, std::min(column + 1, window.right - 1))];
      next[window.at(row, column)] = here + physics.per_power * power[window.at(row, column)] +
                                     physics.per_neighbour * (up + down + left + right - 4 * here) +
                                     physics.per_ambient * (physics.ambient - here);
    }
  }
  return next;
}

struct Worst {
  double share = 0;  // of the error that rounding may cause
  long row = 0;
  long column = 0;

  void note(double error, double allowed, long at_row, long at_column) {
    const double its =
        std::isfinite(error) ? error / allowed : std::numeric_limits<double>::infinity();
    if (its > share) {
      *this = {its, at_row, at_column};
    }
  }
};

// The coldest and hottest that any cell can be; the input's own if it is not finite.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

// Rounding: about three roundings a step of a number near 340, or of the hottest, which averaging
// does not amplify.
double allowed_error(std::uint64_t steps, const Range& possible) {
  const double most = std::max({340.0, std::abs(possible.low), std::abs(possible.high)});
  return most * std::numeric_limits<float>::epsilon() * (2.0 + static_cast<double>(steps));
}

void compare_window(
    const Input& in, const File& out, const Window& window, const Range& possible, Worst& worst) {
  const HotspotPhysics physics = hotspot_physics(in.numbers());
  const std::uint64_t rows = in.numbers().at("rows");
  const std::uint64_t steps = in.numbers().at("steps");
  const Window wide = window.widened(static_cast<long>(steps), static_cast<long>(rows));
  const std::vector<double> power = read_window(in, 1, wide);
  std::vector<double> cells = read_window(in, 0, wide);
  for (std::uint64_t i = 0; i < steps; ++i) {
    cells = step(physics, wide, cells, power);
  }
  std::vector<float> got(static_cast<std::size_t>(window.width()));
  for (long row = window.top; row < window.bottom; ++row) {
    const std::uint64_t first =
        static_cast<std::uint64_t>(row) * rows + static_cast<std::uint64_t>(window.left);
    out.read(got.data(), got.size() * sizeof(float), first * sizeof(float));
    for (long column = window.left; column < window.right; ++column) {
      const double error =
          std::abs(static_cast<double>(got[static_cast<std::size_t>(column - window.left)]) -
                   cells[wide.at(row, column)]);
      worst.note(error, allowed_error(steps, possible), row, column);
    }
  }
}

Range range_of(const Input& in, std::size_t section) {
  const std::uint64_t rows = in.numbers().at("rows");
  Range range;
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::vector<float> cells = in.elements<float>(section, row * rows, rows);
    const auto [low, high] = std::minmax_element(cells.begin(), cells.end());
    range = {std::min<double>(range.low, *low), std::max<double>(range.high, *high)};
  }
  return range;
}

Range possible_range(const Input& in) {
  const auto steps = static_cast<double>(in.numbers().at("steps"));
  const HotspotPhysics physics = hotspot_physics(in.numbers());
  const Range temperature = range_of(in, 0);
  const Range power = range_of(in, 1);
  return {temperature.low + std::min(0.0, power.low) * physics.per_power * steps +
              std::min(0.0, physics.ambient - temperature.low),
          temperature.high + std::max(0.0, power.high) * physics.per_power * steps +
              std::max(0.0, physics.ambient - temperature.high)};
}

// The first row with a cell that is colder or hotter than can be, or -1.
long impossible_row(const Input& in, const File& out, const Range& possible) {
  const std::uint64_t rows = in.numbers().at("rows");
  const double error = allowed_error(in.numbers().at("steps"), possible);
  const double low = possible.low - error;
  const double high = possible.high + error;
  std::vector<float> cells(rows);
  for (std::uint64_t row = 0; row < rows; ++row) {
    out.read(cells.data(), rows * sizeof(float), row * rows * sizeof(float));
    const bool can_be = std::all_of(
        cells.begin(), cells.end(), [&](float cell) { return cell >= low && cell <= high; });
    if (!can_be) {
      return static_cast<long>(row);
    }
  }
  return -1;
}

}  // namespace

double hotspot_cell_metres(const Numbers& numbers) {
  const auto chip = static_cast<double>(numbers.at("chip"));
  return chip == 0 ? 0.016 / 1024 : chip / 1000 / static_cast<double>(numbers.at("rows"));
}

HotspotPhysics hotspot_physics(const Numbers& numbers) {
  const double cell = hotspot_cell_metres(numbers);
  const auto divisor = static_cast<double>(numbers.at("divisor"));
  const std::uint64_t ambient = numbers.at("ambient");
  constexpr double thickness = 0.0005;
  constexpr double conductivity = 100;
  constexpr double heat = 0.5 * 1.75e6;
  const double capacity = heat * thickness * cell * cell;
  const double seconds = 0.001 / (3e6 / (heat * thickness)) / (divisor == 0 ? 1.0 : divisor);
  const double sideways = 2 * conductivity * thickness;  // per kelvin, for square cells
  const double upwards = conductivity * cell * cell / thickness;
  return {static_cast<float>(seconds / capacity),
          static_cast<float>(seconds / capacity * sideways),
          static_cast<float>(seconds / capacity * upwards),
          ambient == 0 ? 300.0F : static_cast<float>(ambient)};
}

Format hotspot_format() {
  return {"hotspot",
          {{"rows", 1024, 1, 65536, "rows and columns of the chip"},
           {"steps", 60, 1, 10000, "of time"},
           {"chip", 0, 0, 1000, "its side in mm; 0: cells of 16 mm / 1024; Rodinia's: 16"},
           {"ambient", 0, 0, 1000, "the air's temperature in K; 0: 300; Rodinia's: 80"},
           {"divisor", 0, 0, 1000000, "of a step's time; 0: 1; Rodinia's with OpenMP: 1000"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            // Beyond that a step takes more heat from a cell than there is, and errors grow.
            const HotspotPhysics physics = hotspot_physics(numbers);
            if (4 * physics.per_neighbour + physics.per_ambient > 1) {
              throw std::invalid_argument(
                  "steps are too long for cells as small as chip / rows: the divisor is too small");
            }
            return {hotspot_output_bytes(numbers), hotspot_output_bytes(numbers)};
          }};
}

std::uint64_t hotspot_output_bytes(const Numbers& numbers) {
  return numbers.at("rows") * numbers.at("rows") * sizeof(float);
}

Verdict hotspot_check(const Input& in, const File& out) {
  const std::uint64_t rows = in.numbers().at("rows");
  const auto last = static_cast<long>(rows);
  const Range possible = possible_range(in);
  if (const long row = impossible_row(in, out, possible); row >= 0) {
    return {false, "row " + std::to_string(row) + " has a temperature that cannot be"};
  }
  Worst worst;
  const bool every = rows * rows * in.numbers().at("steps") <= every_cell_max;
  if (every) {
    compare_window(in, out, {0, last, 0, last}, possible, worst);
  } else {
    const RandomField places(7);
    for (unsigned i = 0; i < patches; ++i) {
      const long row = i < 2 ? 0 : static_cast<long>(places.bits(0, i) % rows);
      const long column = i < 1 ? 0 : static_cast<long>(places.bits(1, i) % rows);
      const Window window{row, std::min(row + patch, last), column, std::min(column + patch, last)};
      compare_window(in, out, window, possible, worst);
    }
  }
  return {worst.share <= 1.0,
          std::string(every ? "every cell" : "patches") + " compared, the largest error is " +
              std::to_string(worst.share) + " of what rounding may cause (row " +
              std::to_string(worst.row) + ", column " + std::to_string(worst.column) + ")"};
}
