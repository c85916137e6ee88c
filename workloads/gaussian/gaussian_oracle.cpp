// The equations with the solution put in, and what files hold.
#include "workloads/gaussian/gaussian.hpp"

#include <cmath>
#include <limits>

Format gaussian_format() {
  return {"gaussian",
          {{"rows", 1024, 1, 65536, "and columns of the matrix"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            const std::uint64_t rows = numbers.at("rows");
            return {rows * rows * sizeof(float), rows * sizeof(float)};
          }};
}

std::uint64_t gaussian_output_bytes(const Numbers& numbers) {
  return numbers.at("rows") * sizeof(float);
}

Verdict gaussian_check(const Input& in, const File& out) {
  const std::uint64_t rows = in.numbers().at("rows");
  const std::vector<float> right = in.elements<float>(1, 0, rows);
  std::vector<float> solution(rows);
  out.read(solution.data(), rows * sizeof(float), 0);
  double worst = 0;
  std::uint64_t worst_row = 0;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::vector<float> row = in.elements<float>(0, i * rows, rows);
    double residual = -static_cast<double>(right[i]);
    double magnitude = std::abs(right[i]);
    for (std::uint64_t j = 0; j < rows; ++j) {
      const double product = static_cast<double>(row[j]) * solution[j];
      residual += product;
      magnitude += std::abs(product);
    }
    const double allowed = 4.0 * std::sqrt(static_cast<double>(rows)) *
                           std::numeric_limits<float>::epsilon() * magnitude;
    const double share = std::isfinite(residual) ? std::abs(residual) / allowed
                                                 : std::numeric_limits<double>::infinity();
    if (magnitude != 0 && share > worst) {  // also where it is not a number
      worst = share;
      worst_row = i;
    }
  }
  return {worst <= 1.0,
          "all equations, the largest residual is " + std::to_string(worst) +
              " of what rounding may cause (row " + std::to_string(worst_row) + ")"};
}
