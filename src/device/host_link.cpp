// The bookkeeping of a simulated link.
#include "device/host_link.hpp"

#include <algorithm>

namespace hippogriff {

SimulatedLink::TimePoint SimulatedLink::reserve(LinkDirection direction, std::size_t size_bytes) {
  constexpr double seconds_max = 1e6;  // keeps the clock's 64 bits from overflowing
  const std::chrono::duration<double> occupied(
      std::min(static_cast<double>(size_bytes) / bytes_per_second_, seconds_max));
  const std::scoped_lock lock(mutex_);
  TimePoint& free_at = free_at_.at(static_cast<std::size_t>(direction));
  const TimePoint start = std::max(free_at, std::chrono::steady_clock::now());
  free_at = start + std::chrono::duration_cast<std::chrono::nanoseconds>(occupied);
  return free_at + latency_;
}

}  // namespace hippogriff
