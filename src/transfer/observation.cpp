// What a finished transfer teaches about the machine: rates of lanes, their CPU time, the link.
#include "transfer/observation.hpp"

#include "transfer/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace hippogriff {
namespace {

constexpr std::uint64_t observed_bytes_min = std::uint64_t{16} << 20;
constexpr double observed_share = 0.25;

// What starting costs hides a link's rate in shorter transfers.
constexpr double link_judged_seconds_min = 0.02;

// Of batches that found the link idle: so few where it is the link that takes the time, so many
// where more channels would have moved more.
constexpr double never_idle = 0.1;
constexpr double often_idle = 0.2;

// Channels are chosen by the link's rate. Where they got nearly all of it and left the link idle,
// it can do more than was thought: this much is tried next.
constexpr double nearly_the_rate = 0.87;
constexpr double more_to_try = 1.5;

// A lane that carried this much of a transfer had the link for itself.
constexpr double nearly_all = 0.9;

// A quarter of the way, unless what was seen cannot be.
void approach(double& value, double seen) {
  if (std::isfinite(seen) && seen > 0) {
    value += (seen - value) * observed_share;
  }
}

void approach(Rate& rate, double bytes_per_second, const Observation& seen) {
  approach(rate.bytes_per_second, std::clamp(bytes_per_second, 1e3, 1e13));
  const double cost = seen.cpu_seconds / static_cast<double>(seen.bytes);
  approach(rate.cpu_seconds_per_byte, std::min(cost, 1e-3));
}

// How fast the lane's threads were while they ran. Both are lower bounds: by the clock they also
// waited for the link, and by their CPU time they also did other things.
double channel_rate(const Observation& seen) {
  const auto bytes = static_cast<double>(seen.bytes);
  const double by_clock = bytes / seen.seconds / std::max(seen.channels, 1u);
  const double by_cpu = seen.cpu_seconds > 0 ? bytes / seen.cpu_seconds : 0;
  return std::max(by_clock, by_cpu);
}

void observe_reading(HostCalibration& host, const Observation& seen) {
  const double together = static_cast<double>(seen.bytes) / seen.seconds;
  approach(host.cached_read_per_channel, channel_rate(seen), seen);
  if (together > host.cached_read_max) {
    approach(host.cached_read_max, together);
  }
}

void observe_writing(HostCalibration& host, const Observation& seen) {
  if (seen.in_memory && seen.channels >= EngineShape::mapped_write_channels_min) {
    return;  // they wrote through a mapping, which has rates of its own
  }
  if (seen.channels > 1) {
    // Threads that spin for the file's lock look busy: only their sum is true.
    approach(host.cached_write_max, static_cast<double>(seen.bytes) / seen.seconds);
    return;
  }
  const double scale = host.cached_write_max / host.cached_write_per_channel.bytes_per_second;
  approach(host.cached_write_per_channel, channel_rate(seen), seen);
  host.cached_write_max = scale * host.cached_write_per_channel.bytes_per_second;
}

Rate& mapped_rate(LinkCalibration& link, const Observation& seen) {
  if (!seen.in_memory) {
    return link.register_pages;
  }
  return seen.direction == Direction::send ? link.register_shared_memory : link.register_new_pages;
}

void observe_link(LinkCalibration& link, const Observation& seen) {
  Rate& rate = seen.direction == Direction::send ? link.to_device : link.to_host;
  const double got = seen.transfer_bytes_per_second;
  if (got <= 0) {
    return;
  }
  const bool judged = seen.lane == Lane::buffered && seen.direction == Direction::send &&
                      seen.seconds >= link_judged_seconds_min;
  const bool slower = judged && seen.link_idle_share >= 0 && seen.link_idle_share <= never_idle;
  const bool held_back = judged && seen.link_idle_share >= often_idle &&
                         got >= nearly_the_rate * rate.bytes_per_second;
  if (held_back) {
    approach(rate.bytes_per_second, std::min(more_to_try * got, 1e13));
  } else if (slower || got > rate.bytes_per_second) {
    approach(rate.bytes_per_second, std::clamp(got, 1e3, 1e13));
  }
}

// Registration has no rate of its own beside other lanes: there it shares the link with them.
void observe_mapping(LinkCalibration& link, const Observation& seen) {
  Rate& rate = mapped_rate(link, seen);
  const double together = static_cast<double>(seen.bytes) / seen.seconds;
  const double one = together / mapped_speedup(seen.channels, seen.in_memory, seen.direction);
  const bool alone = together >= nearly_all * seen.transfer_bytes_per_second;
  approach(rate, alone || one > rate.bytes_per_second ? one : rate.bytes_per_second, seen);
}

// A rate that is at least what was seen. What it costs the CPU is not taken: the memory's new pages
// are made on the way.
void raise(double& rate, double seen) {
  if (seen > rate) {
    approach(rate, std::min(seen, 1e13));
  }
}

// Threads that read or write in place, each waiting for one piece at a time: what they show was
// there, but it may be that nobody asked for more. Unless it was far less: what raised a drive's
// rate may have been blocks that were never written, which are read without it.
void observe_direct(Calibration& calibration, const Observation& seen) {
  constexpr double far_below = 0.5;
  const bool sending = seen.direction == Direction::send;
  const double together = static_cast<double>(seen.bytes) / seen.seconds;
  if (seen.drive_bytes == seen.bytes) {
    DriveCalibration& drive = calibration.drive;
    double& rate = (sending ? drive.direct_read : drive.direct_write).bytes_per_second;
    if (together > rate || together < far_below * rate) {
      approach(rate, std::clamp(together, 1e3, 1e13));
    }
  } else if (seen.drive_bytes == 0) {
    HostCalibration& host = calibration.host;
    const double one = together / std::max(seen.channels, 1U);
    raise((sending ? host.cached_read_per_channel : host.cached_write_per_channel).bytes_per_second,
          one);
    raise(sending ? host.cached_read_max : host.cached_write_max, together);
  }
}

bool teaches(const Observation& seen) {
  return seen.alone && seen.bytes >= observed_bytes_min && std::isfinite(seen.seconds) &&
         seen.seconds > 0 && std::isfinite(seen.cpu_seconds) && seen.cpu_seconds >= 0 &&
         std::isfinite(seen.transfer_bytes_per_second);
}

}  // namespace

void learn(Calibration& calibration, const Observation& seen) {
  if (!teaches(seen)) {
    return;
  }
  const bool sending = seen.direction == Direction::send;
  switch (seen.lane) {
    case Lane::buffered:
      if (sending) {
        observe_reading(calibration.host, seen);
      } else {
        observe_writing(calibration.host, seen);
      }
      break;
    case Lane::mapped:
      observe_mapping(calibration.link, seen);
      break;
    case Lane::direct_io:
      approach(sending ? calibration.drive.direct_read : calibration.drive.direct_write,
               static_cast<double>(seen.bytes) / seen.seconds,
               seen);
      break;
    case Lane::direct:
      observe_direct(calibration, seen);
      return;
    case Lane::parked:
      return;
  }
  observe_link(calibration.link, seen);
}

}  // namespace hippogriff
