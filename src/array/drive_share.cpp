// Everything seen was written by others: it is cut to what can be before it is computed with.
#include "array/drive_share.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr double second_ns = 1e9;
// Counts come every 100 ms while an array is used; a thread that got no core may be late.
constexpr std::int64_t fresh_ns = 300'000'000;
constexpr std::int64_t window_min_ns = 10'000'000;
constexpr std::uint64_t least_ns_min = 20'000;
constexpr std::uint64_t least_ns_max = 50'000'000;
constexpr double answers_per_second_max = 1e9;
constexpr double crowding = 2;  // how much longer than its least a request may take
constexpr std::uint64_t request_bytes_max = std::uint64_t{1} << 20;

// What is left for us when each of the others has what it wants, or as much as we.
double level_of(double budget, std::vector<std::uint64_t> wants) {
  std::ranges::sort(wants);
  auto sharing = static_cast<double>(wants.size() + 1);
  for (const std::uint64_t each : wants) {
    if (static_cast<double>(each) * sharing > budget) {
      break;
    }
    budget -= static_cast<double>(each);
    sharing -= 1;
  }
  return budget / sharing;
}

// In requests as long as ours: a drive's time goes by bytes as much as by requests.
std::uint64_t in_our_requests(std::uint64_t wants, std::uint64_t their_bytes, std::uint64_t ours) {
  const std::uint64_t theirs = std::clamp<std::uint64_t>(their_bytes, 1, request_bytes_max);
  const std::uint64_t own = std::clamp<std::uint64_t>(ours, 1, request_bytes_max);
  return std::clamp<std::uint64_t>(wants * theirs / own, 1, drive_share_max);
}

}  // namespace

std::uint64_t drive_share(const DriveCrowd& crowd) {
  if (crowd.others.empty()) {
    return drive_share_max;
  }
  const double least_ns =
      crowd.least_ns == 0
          ? 0
          : static_cast<double>(std::clamp(crowd.least_ns, least_ns_min, least_ns_max));
  const double answers =
      crowd.answers_per_second > 0 ? std::min(crowd.answers_per_second, answers_per_second_max) : 0;
  const double level = level_of(answers * least_ns * crowding / second_ns, crowd.others);
  return std::clamp(
      std::max(static_cast<std::uint64_t>(level), *std::ranges::min_element(crowd.others)),
      drive_share_min,
      drive_share_max);
}

void OthersAtDrive::update(Known& known, const node::SeenArray& seen) {
  const std::int64_t took_ns = seen.counted_ns - known.counted_ns;
  if (known.counted_ns == 0 || took_ns < 0 || seen.counts.drive_answers < known.answers) {
    known = {.answers = seen.counts.drive_answers, .counted_ns = seen.counted_ns};
  } else if (took_ns >= window_min_ns) {
    const std::uint64_t answers = seen.counts.drive_answers - known.answers;
    known.per_second = static_cast<double>(answers) * second_ns / static_cast<double>(took_ns);
    known.answered_ns = answers != 0 ? seen.counted_ns : known.answered_ns;
    known.answers = seen.counts.drive_answers;
    known.counted_ns = seen.counted_ns;
  }
  const std::uint64_t wants = std::clamp<std::uint64_t>(seen.counts.in_flight, 1, drive_share_max);
  known.wants = std::max(wants, known.wants / 4 * 3);
}

DriveCrowd OthersAtDrive::look(std::span<const node::SeenArray> seen,
                               std::string_view drive,
                               std::uint64_t request_bytes,
                               std::int64_t now_ns) {
  DriveCrowd crowd;
  std::map<Array, Known> present;
  std::map<std::uint32_t, std::uint64_t> wants;  // by client
  for (const node::SeenArray& each : seen) {
    if (drive.empty() || each.shown.drive != drive.substr(0, node::drive_name_max)) {
      continue;
    }
    const Array key{each.client, each.record, each.opened_ns};
    Known& known = present[key];
    if (const auto before = known_.find(key); before != known_.end()) {
      known = before->second;
    }
    update(known, each);
    if (known.answered_ns == 0 || now_ns - known.answered_ns > fresh_ns) {
      continue;
    }
    crowd.answers_per_second += known.per_second;
    if (const std::uint64_t least_ns = each.counts.drive_least_ns; least_ns != 0) {
      crowd.least_ns = crowd.least_ns == 0 ? least_ns : std::min(crowd.least_ns, least_ns);
    }
    wants[each.client] += in_our_requests(known.wants, each.shown.line_bytes, request_bytes);
  }
  for (const auto& entry : wants) {
    crowd.others.push_back(std::min(entry.second, drive_share_max));
  }
  known_ = std::move(present);
  return crowd;
}

}  // namespace hippogriff::ondemand
