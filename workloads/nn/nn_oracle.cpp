// The nearest by a heap, and what files hold.
#include "workloads/nn/nn.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <queue>
#include <tuple>

namespace {

constexpr std::uint64_t records_at_once = 1U << 16U;

struct Found {
  float square;
  unsigned record;

  // By distance as its bits sort, then by record.
  friend bool operator<(const Found& a, const Found& b) {
    return std::tuple(std::bit_cast<unsigned>(a.square), a.record) <
           std::tuple(std::bit_cast<unsigned>(b.square), b.record);
  }
};

std::vector<Found> find(const Input& in) {
  const Numbers& numbers = in.numbers();
  const std::uint64_t count = numbers.at("records");
  const auto latitude = static_cast<float>(numbers.at("latitude"));
  const auto longitude = static_cast<float>(numbers.at("longitude"));
  std::priority_queue<Found> nearest;  // the farthest of them on top
  for (std::uint64_t first = 0; first < count; first += records_at_once) {
    const std::vector<NnPlace> places =
        in.elements<NnPlace>(0, first, std::min(records_at_once, count - first));
    for (std::uint64_t i = 0; i < places.size(); ++i) {
      const float north = places[i].latitude - latitude;
      const float east = places[i].longitude - longitude;
      nearest.push({north * north + east * east, static_cast<unsigned>(first + i)});
      if (nearest.size() > nn_found(numbers)) {
        nearest.pop();
      }
    }
  }
  std::vector<Found> found;
  for (; !nearest.empty(); nearest.pop()) {
    found.push_back(nearest.top());
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace

Format nn_format() {
  return {"nn",
          {{"records", 1U << 20U, 1, 0xFFFFFFFFU, "how many places"},
           {"neighbours", 10, 1, NnSmallest<NnKeys>::best_max, "to find"},
           {"latitude", 30, 0, 90, "of the place they are near to, in degrees"},
           {"longitude", 90, 0, 360, "of the place they are near to, in degrees"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            return {numbers.at("records") * sizeof(NnPlace)};
          }};
}

std::uint64_t nn_output_bytes(const Numbers& numbers) {
  return nn_found(numbers) * sizeof(NnAnswer);
}

unsigned nn_found(const Numbers& numbers) {
  return static_cast<unsigned>(std::min(numbers.at("records"), numbers.at("neighbours")));
}

Verdict nn_check(const Input& in, const File& out) {
  const std::vector<Found> expected = find(in);
  std::vector<NnAnswer> got(expected.size());
  out.read(got.data(), got.size() * sizeof(NnAnswer), 0);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const float distance = std::sqrt(expected[i].square);
    const bool same = std::bit_cast<unsigned>(got[i].distance) == std::bit_cast<unsigned>(distance);
    if (got[i].record != expected[i].record || !same) {
      return {false,
              "neighbour " + std::to_string(i) + " is record " +
                  std::to_string(expected[i].record) + " at " + std::to_string(distance) +
                  ", not " + std::to_string(got[i].record) + " at " +
                  std::to_string(got[i].distance)};
    }
  }
  return {true, "all " + std::to_string(got.size()) + " neighbours, bit by bit"};
}
