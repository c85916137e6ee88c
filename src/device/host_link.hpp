// A simulated link between host and device: the time copies take, shared by all streams.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace hippogriff {

enum class LinkDirection : std::uint8_t { to_device, to_host };

// Full duplex: each direction carries one copy at a time at the given bandwidth. The latency is
// paid by each copy but does not occupy the link. Thread-safe.
class SimulatedLink {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // bytes_per_second > 0.
  SimulatedLink(double bytes_per_second, std::chrono::nanoseconds latency)
      : bytes_per_second_(bytes_per_second), latency_(latency) {}

  // Puts a copy behind those that were reserved before it and says when it ends.
  [[nodiscard]] TimePoint reserve(LinkDirection direction, std::size_t size_bytes);

 private:
  const double bytes_per_second_;
  const std::chrono::nanoseconds latency_;
  std::mutex mutex_;
  std::array<TimePoint, 2> free_at_{};
};

}  // namespace hippogriff
