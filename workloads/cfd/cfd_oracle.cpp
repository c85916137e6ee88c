// The equations in double on a part of the mesh, and what files hold.
#include "workloads/cfd/cfd.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <unordered_map>

namespace {

constexpr std::uint64_t every_element_max = 1U << 17U;  // elements times stages
constexpr std::uint64_t part_max = 1U << 25U;           // the same of a part, else it is left out
constexpr unsigned samples = 8;
constexpr double gas_gamma = 1.4;
constexpr std::size_t outside = ~std::size_t{0};

using Vector = std::array<double, 3>;
using Gas = std::array<double, cfd_variables>;  // density, momentum, energy

Vector momentum_of(const Gas& gas) {
  return {gas[1], gas[2], gas[3]};
}

double dot(const Vector& a, const Vector& b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

double pressure_of(const Gas& gas) {
  return (gas_gamma - 1) * (gas[4] - dot(momentum_of(gas), momentum_of(gas)) / (2 * gas[0]));
}

double speed_of(const Gas& gas) {
  return std::sqrt(dot(momentum_of(gas), momentum_of(gas))) / gas[0] +
         std::sqrt(gas_gamma * pressure_of(gas) / gas[0]);
}

// What flows through an area, by one gas.
Gas flux_of(const Gas& gas, const Vector& area) {
  const double volume = dot(momentum_of(gas), area) / gas[0];
  const double pressure = pressure_of(gas);
  return {gas[0] * volume,
          gas[1] * volume + pressure * area[0],
          gas[2] * volume + pressure * area[1],
          gas[3] * volume + pressure * area[2],
          (gas[4] + pressure) * volume};
}

Gas mirrored(const Gas& gas, const Vector& area) {
  const double share = 2 * dot(momentum_of(gas), area) / dot(area, area);
  return {
      gas[0], gas[1] - share * area[0], gas[2] - share * area[1], gas[3] - share * area[2], gas[4]};
}

Gas far_gas() {
  return {1.4, 1.4 * 1.2, 0, 0, 1.0 / (gas_gamma - 1) + 0.5 * 1.4 * 1.2 * 1.2};
}

struct Element {
  double volume = 0;
  std::array<int, cfd_faces> neighbours = {};      // as the file has them
  std::array<std::size_t, cfd_faces> places = {};  // in the part; outside: unknown
  std::array<Vector, cfd_faces> areas = {};
};

// Some elements and all that they depend on for some stages; beyond, an element stands in for its
// unknown neighbours, which after so many stages has not come far enough to matter.
class Part {
 public:
  Part(const Input& in, std::uint64_t element, std::uint64_t hops)
      : in_(in), elements_max_(part_max / hops) {
    add(element);
    std::size_t first = 0;
    for (std::uint64_t hop = 0; hop < hops && is_complete(); ++hop) {
      const std::size_t last = elements_.size();
      for (; first < last; ++first) {
        add_neighbours(first);
      }
    }
    connect();
  }

  explicit Part(const Input& in) : in_(in), elements_max_(every_element_max) {
    for (std::uint64_t i = 0; i < cfd_elements(in.numbers()); ++i) {
      add(i);
    }
    connect();
  }

  [[nodiscard]] bool is_complete() const { return elements_.size() <= elements_max_; }

  // The gas of all elements in the order they were added.
  [[nodiscard]] std::vector<Gas> flow(std::uint64_t iterations) const {
    std::vector<Gas> gas(elements_.size(), far_gas());
    for (std::uint64_t i = 0; i < iterations; ++i) {
      std::vector<double> steps(elements_.size());
      for (std::size_t e = 0; e < elements_.size(); ++e) {
        const double volume = elements_[e].volume;
        steps[e] = static_cast<double>(cfd_step) * std::cbrt(volume) / (speed_of(gas[e]) * volume);
      }
      std::vector<Gas> now = gas;
      for (const double share : {1.0 / 3, 1.0 / 2, 1.0}) {
        now = stage(gas, now, steps, share);
      }
      gas = std::move(now);
    }
    return gas;
  }

 private:
  template <typename T>
  T value(std::size_t section, std::uint64_t index) const {
    T value{};
    const std::uint64_t offset = in_.section(section).offset_bytes + index * sizeof(T);
    in_.file().read(&value, sizeof(T), offset);
    return value;
  }

  void add(std::uint64_t element) {
    if (element >= cfd_elements(in_.numbers())) {
      throw std::runtime_error(in_.file().path() + " is damaged: a face leads to element " +
                               std::to_string(element));
    }
    if (!places_.emplace(element, elements_.size()).second) {
      return;
    }
    const std::uint64_t count = cfd_elements(in_.numbers());
    Element& added = elements_.emplace_back();
    added.volume = value<float>(0, element);
    for (unsigned face = 0; face < cfd_faces; ++face) {
      added.neighbours.at(face) = value<int>(1, face * count + element);
      for (unsigned axis = 0; axis < 3; ++axis) {
        added.areas.at(face).at(axis) =
            value<float>(2, (face * std::uint64_t{3} + axis) * count + element);
      }
    }
  }

  void add_neighbours(std::size_t place) {
    const std::array<int, cfd_faces> neighbours = elements_[place].neighbours;
    for (const int neighbour : neighbours) {
      if (neighbour >= 0) {
        add(static_cast<std::uint64_t>(neighbour));
      }
    }
  }

  void connect() {
    for (Element& element : elements_) {
      for (unsigned face = 0; face < cfd_faces; ++face) {
        const int neighbour = element.neighbours.at(face);
        const auto found =
            neighbour >= 0 ? places_.find(static_cast<std::uint64_t>(neighbour)) : places_.end();
        element.places.at(face) = found == places_.end() ? outside : found->second;
      }
    }
  }

  [[nodiscard]] Gas behind(const std::vector<Gas>& gas, std::size_t e, unsigned face) const {
    const Element& element = elements_[e];
    if (element.neighbours.at(face) == cfd_wall) {
      return mirrored(gas[e], element.areas.at(face));
    }
    if (element.neighbours.at(face) == cfd_far) {
      return far_gas();
    }
    return gas[element.places.at(face) == outside ? e : element.places.at(face)];
  }

  [[nodiscard]] std::vector<Gas> stage(const std::vector<Gas>& start,
                                       const std::vector<Gas>& from,
                                       const std::vector<double>& steps,
                                       double share) const {
    std::vector<Gas> next = start;
    for (std::size_t e = 0; e < elements_.size(); ++e) {
      for (unsigned face = 0; face < cfd_faces; ++face) {
        const Vector& area = elements_[e].areas.at(face);
        const Gas other = behind(from, e, face);
        const Gas out = flux_of(from[e], area);
        const Gas in = flux_of(other, area);
        const double wave =
            std::max(speed_of(from[e]), speed_of(other)) * std::sqrt(dot(area, area));
        for (unsigned i = 0; i < cfd_variables; ++i) {
          const double flux = (out.at(i) + in.at(i) - wave * (other.at(i) - from[e].at(i))) / 2;
          next[e].at(i) -= share * steps[e] * flux;
        }
      }
    }
    return next;
  }

  const Input& in_;
  std::uint64_t elements_max_;
  std::vector<Element> elements_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

Gas read_gas(const Input& in, const File& out, std::uint64_t element) {
  const std::uint64_t count = cfd_elements(in.numbers());
  Gas gas = {};
  for (unsigned i = 0; i < cfd_variables; ++i) {
    float value = 0;
    out.read(&value, sizeof(value), (i * count + element) * sizeof(value));
    gas.at(i) = value;
  }
  return gas;
}

// The largest difference as a share of what rounding may cause.
double compare(const Gas& got, const Gas& expected, std::uint64_t iterations) {
  const double allowed =
      std::numeric_limits<float>::epsilon() * (16.0 + 4.0 * static_cast<double>(iterations));
  double worst = 0;
  for (unsigned i = 0; i < cfd_variables; ++i) {
    const double error =
        std::abs(got.at(i) - expected.at(i)) / (allowed * std::max(1.0, std::abs(expected.at(i))));
    worst = std::max(worst, std::isfinite(error) ? error : std::numeric_limits<double>::infinity());
  }
  return worst;
}

// The first element whose gas cannot be, or the number of elements.
std::uint64_t impossible_element(const Input& in, const File& out) {
  constexpr std::uint64_t at_once = 1U << 16U;
  const std::uint64_t count = cfd_elements(in.numbers());
  std::array<std::vector<float>, cfd_variables> values;
  for (std::uint64_t first = 0; first < count; first += at_once) {
    const std::uint64_t some = std::min(at_once, count - first);
    for (unsigned i = 0; i < cfd_variables; ++i) {
      values.at(i).resize(some);
      out.read(values.at(i).data(), some * sizeof(float), (i * count + first) * sizeof(float));
    }
    for (std::uint64_t e = 0; e < some; ++e) {
      Gas gas = {};
      for (unsigned i = 0; i < cfd_variables; ++i) {
        gas.at(i) = values.at(i)[e];
      }
      if (!(gas[0] > 0 && pressure_of(gas) > 0 && std::isfinite(gas[4]))) {
        return first + e;
      }
    }
  }
  return count;
}

}  // namespace

Format cfd_format() {
  return {"cfd",
          {{"cubes", 32, 1, 512, "along each axis of the box, each of six elements"},
           {"iterations", 10, 1, 100000, "of three stages each"},
           {"elements", 0, 0, 6U << 27U, "of a mesh that is no box; 0: six a cube"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            const std::uint64_t bytes = cfd_elements(numbers) * sizeof(float);
            return {bytes, cfd_faces * bytes, std::uint64_t{3} * cfd_faces * bytes};
          }};
}

std::uint64_t cfd_output_bytes(const Numbers& numbers) {
  return cfd_variables * cfd_elements(numbers) * sizeof(float);
}

std::uint64_t cfd_elements(const Numbers& numbers) {
  const std::uint64_t cubes = numbers.at("cubes");
  const std::uint64_t elements = numbers.at("elements");
  return elements == 0 ? 6 * cubes * cubes * cubes : elements;
}

CfdGas cfd_far_gas() {
  const Gas gas = far_gas();
  return {static_cast<float>(gas[0]),
          {static_cast<float>(gas[1]), static_cast<float>(gas[2]), static_cast<float>(gas[3])},
          static_cast<float>(gas[4])};
}

Verdict cfd_check(const Input& in, const File& out) {
  const std::uint64_t count = cfd_elements(in.numbers());
  const std::uint64_t iterations = in.numbers().at("iterations");
  if (const std::uint64_t element = impossible_element(in, out); element < count) {
    return {false, "the gas in element " + std::to_string(element) + " cannot be"};
  }
  double worst = 0;
  std::uint64_t compared = 0;
  if (count * iterations * 3 <= every_element_max) {
    const std::vector<Gas> expected = Part(in).flow(iterations);
    for (; compared < count; ++compared) {
      worst = std::max(worst, compare(read_gas(in, out, compared), expected[compared], iterations));
    }
  } else {
    const RandomField places(7);
    for (unsigned i = 0; i < samples; ++i) {
      const std::uint64_t element = places.bits(0, i) % count;
      const Part part(in, element, 3 * iterations);
      if (part.is_complete()) {
        const Gas expected = part.flow(iterations)[0];
        worst = std::max(worst, compare(read_gas(in, out, element), expected, iterations));
        ++compared;
      }
    }
  }
  if (compared == 0) {
    return {false, "no element can be computed again with so many iterations"};
  }
  return {worst <= 1.0,
          std::to_string(compared) + " of " + std::to_string(count) +
              " elements computed again, the largest error is " + std::to_string(worst) +
              " of what rounding may cause"};
}
