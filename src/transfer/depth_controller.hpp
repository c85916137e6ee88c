// How many direct requests one transfer keeps at its drive: as many as still bring more throughput
// (the parallel channels of Gullfoss 4.2, for a drive that tells no queue occupancy).
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace hippogriff {

// Climbs from the planned depth by half of itself while a step brings over 3 % more, goes back from
// a step that did not, and tries the next deeper and shallower depths again now and then, more and
// more rarely. Not thread-safe; makes no system calls.
class DepthController {
 public:
  // Depths are requests in flight, from 1 to `depth_max` (1 at least).
  DepthController(std::uint32_t depth_start, std::uint32_t depth_max);

  // The depth to use now.
  [[nodiscard]] std::uint32_t depth() const { return depth_; }

  // A request has completed. Closes a window once enough of them were seen at this depth.
  void completed(std::uint64_t bytes, std::chrono::steady_clock::time_point now);

  // What a window of time at depth() saw; returns the depth for the next. Windows without bytes or
  // time tell nothing.
  std::uint32_t window(std::uint64_t bytes, double seconds);

 private:
  enum class Stage : std::uint8_t { starting, climbing, descending, settled, probing };

  void climb(double throughput);
  void descend(double throughput);
  void stay(double throughput);
  void probe(double throughput);
  void settle(std::uint32_t depth, double throughput);
  void move_to(std::uint32_t depth, Stage stage);
  [[nodiscard]] std::uint32_t deeper() const;
  [[nodiscard]] std::uint32_t shallower() const;

  const std::uint32_t depth_max_;
  std::uint32_t depth_;
  Stage stage_ = Stage::starting;
  std::uint32_t base_depth_;    // where the last step came from
  double base_throughput_ = 0;  // bytes per second there
  std::uint32_t patience_;      // settled windows between probes
  std::uint32_t windows_here_ = 0;
  double probed_throughput_ = 0;  // sum over the probe's windows
  bool probe_deeper_ = false;
  bool climbed_ = false;

  bool skipping_ = true;  // requests that were submitted at another depth
  std::uint32_t requests_ = 0;
  std::uint64_t window_bytes_ = 0;
  std::optional<std::chrono::steady_clock::time_point> window_begin_;
};

}  // namespace hippogriff
