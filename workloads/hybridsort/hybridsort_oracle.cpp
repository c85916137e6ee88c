// Order and a hash that does not know it, and what files hold.
#include "workloads/hybridsort/hybridsort.hpp"
#include "workloads/sharing/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace {

constexpr std::uint64_t keys_at_once = 1U << 20U;

// NaNs have no order of their own: they are at the ends, by their sign.
bool is_before(float a, float b) {
  if (std::isnan(a)) {
    return std::signbit(a) || (std::isnan(b) && !std::signbit(b));
  }
  if (std::isnan(b)) {
    return !std::signbit(b);
  }
  return a < b || (a == b && (std::signbit(a) || !std::signbit(b)));
}

std::uint64_t hash_of(const std::vector<float>& keys) {
  std::uint64_t sum = 0;
  for (const float key : keys) {
    sum += Random(std::bit_cast<std::uint32_t>(key)).next();
  }
  return sum;
}

}  // namespace

Format hybridsort_format() {
  return {"hybridsort",
          {{"keys", 1U << 20U, 1, 0xFFFFFFFFU, "floats to sort"}},
          [](const Numbers& numbers) -> std::vector<std::uint64_t> {
            return {hybridsort_output_bytes(numbers)};
          }};
}

std::uint64_t hybridsort_output_bytes(const Numbers& numbers) {
  return numbers.at("keys") * sizeof(float);
}

Verdict hybridsort_check(const Input& in, const File& out) {
  const std::uint64_t count = in.numbers().at("keys");
  std::uint64_t hash = 0;
  std::vector<float> last;
  for (std::uint64_t first = 0; first < count; first += keys_at_once) {
    hash += hash_of(in.elements<float>(0, first, std::min(keys_at_once, count - first)));
    std::vector<float> keys(std::min(keys_at_once, count - first));
    out.read(keys.data(), keys.size() * sizeof(float), first * sizeof(float));
    hash -= hash_of(keys);
    const bool follows = last.empty() || is_before(last.back(), keys.front());
    if (!follows || !std::is_sorted(keys.begin(), keys.end(), [](float a, float b) {
          return !is_before(b, a);
        })) {
      return {false, "keys from " + std::to_string(first) + " on are not in order"};
    }
    last = std::move(keys);
  }
  if (hash != 0) {
    return {false, "in order, but not the keys of the input"};
  }
  return {true, "all " + std::to_string(count) + " keys in order, and the input's"};
}
