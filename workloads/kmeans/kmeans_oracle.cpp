// Nearest centres and means in double, and what files hold.
#include "workloads/kmeans/kmeans.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace {

constexpr double rerun_max = 0x1p31;  // points times features times clusters times iterations
constexpr std::uint64_t points_at_once = 4096;

using Centres = std::vector<double>;  // [cluster][feature]

struct Shape {
  explicit Shape(const Numbers& numbers)
      : points(numbers.at("points")),
        features(numbers.at("features")),
        clusters(numbers.at("clusters")) {}

  std::uint64_t points;
  std::uint64_t features;
  std::uint64_t clusters;
};

double square_distance(const float* point, const double* centre, std::uint64_t features) {
  double sum = 0;
  for (std::uint64_t f = 0; f < features; ++f) {
    sum += (point[f] - centre[f]) * (point[f] - centre[f]);
  }
  return sum;
}

std::uint64_t nearest_of(const float* point, const Centres& centres, const Shape& shape) {
  std::uint64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::uint64_t c = 0; c < shape.clusters; ++c) {
    const double square =
        square_distance(point, centres.data() + c * shape.features, shape.features);
    if (square < least) {
      least = square;
      best = c;
    }
  }
  return best;
}

// Sums of the points of each cluster, and their means.
class Sums {
 public:
  explicit Sums(const Shape& shape)
      : shape_(shape), sums_(shape.clusters * shape.features), sizes_(shape.clusters) {}

  void add(const float* point, std::uint64_t cluster) {
    ++sizes_[cluster];
    for (std::uint64_t f = 0; f < shape_.features; ++f) {
      sums_[cluster * shape_.features + f] += point[f];
    }
  }

  [[nodiscard]] Centres means(const Centres& centres) const {
    Centres means = centres;
    for (std::size_t v = 0; v < means.size(); ++v) {
      const std::uint64_t size = sizes_[v / shape_.features];
      means[v] = size > 0 ? sums_[v] / static_cast<double>(size) : centres[v];
    }
    return means;
  }

 private:
  Shape shape_;
  std::vector<double> sums_;
  std::vector<std::uint64_t> sizes_;
};

// All points, a few at a time: look(index, its features).
template <typename Look>
void for_each_point(const Input& in, const Shape& shape, const Look& look) {
  for (std::uint64_t first = 0; first < shape.points; first += points_at_once) {
    const std::uint64_t count = std::min(points_at_once, shape.points - first);
    const std::vector<float> values =
        in.elements<float>(0, first * shape.features, count * shape.features);
    for (std::uint64_t i = 0; i < count; ++i) {
      look(first + i, values.data() + i * shape.features);
    }
  }
}

Centres read_centres(const File& out, const Shape& shape, std::uint64_t which) {
  std::vector<float> values(shape.clusters * shape.features);
  const std::uint64_t bytes = values.size() * sizeof(float);
  out.read(values.data(), bytes, shape.points * sizeof(int) + which * bytes);
  return {values.begin(), values.end()};
}

// The largest difference; infinite when one is not a number.
double difference(const Centres& a, const Centres& b) {
  double most = 0;
  for (std::size_t v = 0; v < a.size(); ++v) {
    const double apart = std::abs(a[v] - b[v]);
    most = std::max(most, std::isfinite(apart) ? apart : std::numeric_limits<double>::infinity());
  }
  return most;
}

// The centres by which the last iteration decides.
Centres iterate(const Input& in, const Shape& shape) {
  Centres centres;
  for (std::uint64_t c = 0; c < shape.clusters; ++c) {
    const std::uint64_t point = kmeans_first_point(in.numbers(), c);
    for (const float value : in.elements<float>(0, point * shape.features, shape.features)) {
      centres.push_back(value);
    }
  }
  const std::uint64_t iterations = in.numbers().at("iterations");
  std::vector<std::uint64_t> members(shape.points, shape.clusters);
  for (std::uint64_t i = 0; i < iterations; ++i) {
    Sums sums(shape);
    bool changed = false;
    for_each_point(in, shape, [&](std::uint64_t index, const float* point) {
      const std::uint64_t nearest = nearest_of(point, centres, shape);
      changed = changed || members[index] != nearest;
      members[index] = nearest;
      sums.add(point, nearest);
    });
    if (!changed || i + 1 == iterations) {
      break;
    }
    centres = sums.means(centres);
  }
  return centres;
}

}  // namespace

Format kmeans_format() {
  return {"kmeans",
          {{"points", 1U << 20U, 1, std::uint64_t{1} << 31U, "how many"},
           {"features", 34, 1, KmeansShape::features_max, "of a point"},
           {"clusters", 5, 1, KmeansShape::clusters_max, "to find"},
           {"iterations", 20, 1, 100000, "at most"},
           {"first", 0, 0, 1, "1: the first centres are the first points, as Rodinia's"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            if (numbers.at("first") == 1 && numbers.at("clusters") > numbers.at("points")) {
              throw std::invalid_argument("the first points are fewer than clusters");
            }
            return {numbers.at("points") * numbers.at("features") * sizeof(float)};
          }};
}

std::uint64_t kmeans_output_bytes(const Numbers& numbers) {
  return numbers.at("points") * sizeof(int) +
         2 * numbers.at("clusters") * numbers.at("features") * sizeof(float);
}

std::uint64_t kmeans_first_point(const Numbers& numbers, std::uint64_t cluster) {
  return numbers.at("first") == 1 ? cluster
                                  : cluster * numbers.at("points") / numbers.at("clusters");
}

Verdict kmeans_check(const Input& in, const File& out) {
  const Shape shape(in.numbers());
  const Centres centres = read_centres(out, shape, 0);
  const Centres means = read_centres(out, shape, 1);
  std::vector<int> members(points_at_once);
  Sums sums(shape);
  std::uint64_t wrong = 0;
  for_each_point(in, shape, [&](std::uint64_t index, const float* point) {
    if (index % points_at_once == 0) {
      members.resize(std::min(points_at_once, shape.points - index));
      out.read(members.data(), members.size() * sizeof(int), index * sizeof(int));
    }
    const int member = members[index % points_at_once];
    if (member < 0 || static_cast<std::uint64_t>(member) >= shape.clusters) {
      ++wrong;
      return;
    }
    const auto cluster = static_cast<std::uint64_t>(member);
    const std::uint64_t nearest = nearest_of(point, centres, shape);
    const double* const own = centres.data() + cluster * shape.features;
    const double* const best = centres.data() + nearest * shape.features;
    // Of two centres as far away as rounding tells, either will do.
    const double allowed = square_distance(point, best, shape.features) * (1 + 1e-5) + 1e-30;
    wrong += square_distance(point, own, shape.features) <= allowed ? 0 : 1;
    sums.add(point, cluster);
  });
  if (wrong > 0) {
    return {false, std::to_string(wrong) + " points are not with the nearest centre"};
  }
  const double scale = 1.0 + difference(means, Centres(means.size(), 0.0));
  if (const double apart = difference(means, sums.means(centres));
      !std::isfinite(apart) || apart > 1e-5 * scale) {
    return {false, "means are off by up to " + std::to_string(apart)};
  }
  const double work = static_cast<double>(shape.points * shape.features * shape.clusters) *
                      static_cast<double>(in.numbers().at("iterations"));
  if (work > rerun_max) {
    return {true, "every point is with the nearest centre, the means are means"};
  }
  // A point between two centres may have gone the other way, and moved both a little.
  const double apart = difference(centres, iterate(in, shape));
  return {apart <= 1e-3 * scale,
          "every point and mean, and all iterations again: centres differ by up to " +
              std::to_string(apart)};
}
