// How many direct requests one transfer keeps at its drive: more while that brings throughput (the
// parallel channels of Gullfoss 4.2, for a drive that tells no queue occupancy).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace hippogriff {

// Begins with the planned depth and, where that was guessed, tries one step deeper at once: a drive
// whose latency is the limit gains a lot by it. Later it tries deeper and shallower by turns, more
// and more rarely. It stays where a step brought a clear gain, and goes back where it did not: what
// a drive gives varies from window to window by more than most steps bring. Not thread-safe; makes
// no system calls.
class DepthController {
 public:
  enum class Start : std::uint8_t { guessed, measured };

  // With one request alone the drive idles whenever this thread is busy.
  static constexpr std::uint32_t depth_min = 2;

  // Lanes look no deeper than this for a better depth than the planned one.
  static constexpr std::uint32_t tried_max = 16;

  // Depths are requests in flight, from depth_min to `depth_max` (depth_min at least).
  DepthController(std::uint32_t depth_start, std::uint32_t depth_max, Start start);

  // The depth to use now.
  [[nodiscard]] std::uint32_t depth() const { return std::min(depth_, bound_); }

  // From now on no deeper than this, 2 at least: others want the drive as well. While that holds it
  // back, nothing is learnt.
  void bound(std::uint32_t depth_max);

  // A request has completed. Closes a window once enough of them were seen at this depth.
  void completed(std::uint64_t bytes, std::chrono::steady_clock::time_point now);

  // What a window of time at depth() saw; returns the depth for the next. Windows without bytes or
  // time tell nothing.
  std::uint32_t window(std::uint64_t bytes, double seconds);

 private:
  enum class Stage : std::uint8_t { starting, settled, trying };

  void stay(double throughput);
  void judge(double throughput);
  void try_step();
  void settle(std::uint32_t depth, double throughput);
  [[nodiscard]] std::uint32_t next_step() const;

  const std::uint32_t depth_max_;
  std::uint32_t depth_;
  std::uint32_t bound_ = std::numeric_limits<std::uint32_t>::max();
  Stage stage_ = Stage::starting;
  std::uint32_t base_depth_;    // what is known to be good
  double base_throughput_ = 0;  // bytes per second there
  bool deeper_ = true;          // which way the next try goes
  bool first_try_;
  std::uint32_t patience_;  // settled windows between tries
  std::uint32_t windows_here_ = 0;
  double tried_throughput_ = 0;  // sum over the try's windows

  bool skipping_ = true;  // requests that were submitted at another depth
  std::uint32_t requests_ = 0;
  std::uint64_t window_bytes_ = 0;
  std::optional<std::chrono::steady_clock::time_point> window_begin_;
};

}  // namespace hippogriff
