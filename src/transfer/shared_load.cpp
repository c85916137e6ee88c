// Counts processes, not transfers: who has more of them gets no more.
#include "transfer/shared_load.hpp"

#include <algorithm>
#include <bitset>
#include <limits>

namespace hippogriff {

namespace {

// Younger transfers count as this old: nobody knows their speed.
constexpr double seconds_min = 1e-3;

using Clients = std::bitset<node::clients_max>;

double bytes_per_second(const node::ShownTransfer& shown, std::int64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - shown.started_ns) * 1e-9;
  return static_cast<double>(shown.bytes_done) / std::max(seconds, seconds_min);
}

void add(OthersLoad& load, Clients& counted, const node::SeenTransfer& other, std::int64_t now_ns) {
  if (!counted.test(other.client)) {
    counted.set(other.client);
    ++load.processes;
  }
  load.bytes_per_second += bytes_per_second(other.shown, now_ns);
  load.requests += other.shown.drive_requests;
}

std::uint16_t shown_count(std::uint32_t count) {
  return static_cast<std::uint16_t>(
      std::min<std::uint32_t>(count, std::numeric_limits<std::uint16_t>::max()));
}

}  // namespace

bool uses_drive(const TransferFacts& facts) {
  return !facts.in_memory && (facts.direction == Direction::recv || facts.cached_fraction < 1);
}

void add_others(TransferLoad& load,
                std::span<const node::SeenTransfer> others,
                const TransferWay& way,
                std::int64_t now_ns) {
  const std::string drive = way.drive.substr(0, node::drive_name_max);
  Clients on_drive;
  Clients on_link;
  Clients wanting;
  for (const node::SeenTransfer& other : others) {
    const node::ShownTransfer& shown = other.shown;
    if (!drive.empty() && shown.drive == drive && shown.phase != node::TransferPhase::waiting) {
      add(load.others_on_drive, on_drive, other, now_ns);
    }
    if (shown.device != way.device) {
      continue;
    }
    if (shown.phase == node::TransferPhase::moving &&
        shown.sends == (way.direction == Direction::send)) {
      add(load.others_on_link, on_link, other, now_ns);
    }
    if (shown.wants_memory) {
      wanting.set(other.client);
    }
  }
  load.others_want_memory = static_cast<std::uint32_t>(wanting.count());
}

bool any_needs_drive(std::span<const node::SeenTransfer> others, const std::string& drive) {
  const std::string name = drive.substr(0, node::drive_name_max);
  return std::any_of(others.begin(), others.end(), [&](const node::SeenTransfer& other) {
    return !name.empty() && other.shown.drive == name &&
           other.shown.phase == node::TransferPhase::moving;
  });
}

bool any_others(const TransferLoad& load) {
  return load.others_on_drive.processes > 0 || load.others_on_link.processes > 0;
}

void describe_plan(node::ShownTransfer& shown, Route route, const Plan& plan) {
  const std::uint32_t channels =
      plan.buffered_channels + plan.mapped_channels + plan.direct_channels;
  const bool by_queue = plan.direct_io_depth > 0;
  shown.route = static_cast<std::uint8_t>(route);
  shown.channels = shown_count(channels + (by_queue ? 1 : 0));
  // Without a queue each thread waits for the drive.
  shown.drive_requests =
      shown.drive.empty() ? 0 : shown_count(by_queue ? plan.direct_io_depth : channels);
}

}  // namespace hippogriff
