// Steps of half the depth, kept when they pay.
#include "transfer/depth_controller.hpp"

#include <algorithm>

namespace hippogriff {
namespace {

// What a step must bring. Half as many requests again bring half as much again where the drive's
// latency is the limit, and nothing where its bandwidth is. The first try is judged by one window.
constexpr double gain_first = 1.10;
constexpr double gain_later = 1.05;

// Settled windows before a try; doubled by each that brings nothing.
constexpr std::uint32_t patience_min = 8;
constexpr std::uint32_t patience_max = 128;
// A try costs two hundredths of a GiB's time where it brings nothing.
constexpr std::uint32_t patience_measured = 64;

// One window may lie; a try listens to more, but for the first, which has much to gain.
constexpr std::uint32_t try_windows = 3;

// The weight of a new window in what is known of a settled depth.
constexpr double settled_share = 0.25;

// A window is this many rounds of the queue.
constexpr std::uint32_t window_rounds = 2;
constexpr std::uint32_t window_requests_min = 32;

}  // namespace

DepthController::DepthController(std::uint32_t depth_start, std::uint32_t depth_max, Start start)
    : depth_max_(std::max(depth_max, depth_min)),
      depth_(std::clamp(depth_start, depth_min, depth_max_)),
      base_depth_(depth_),
      first_try_(start == Start::guessed),
      patience_(start == Start::guessed ? patience_min : patience_measured) {}

std::uint32_t DepthController::next_step() const {
  return deeper_ ? std::min(depth_max_, depth_ + depth_ / 2)
                 : std::max(depth_min, depth_ - std::max(depth_ / 3, 1U));
}

void DepthController::bound(std::uint32_t depth_max) {
  bound_ = std::max(depth_max, depth_min);
}

void DepthController::completed(std::uint64_t bytes, std::chrono::steady_clock::time_point now) {
  if (bound_ < depth_max_) {
    skipping_ = true;
    requests_ = 0;
    return;
  }
  ++requests_;
  if (skipping_) {
    // What completes first was still submitted at the depth before.
    if (requests_ >= depth_) {
      skipping_ = false;
      requests_ = 0;
      window_bytes_ = 0;
      window_begin_ = now;
    }
    return;
  }
  window_bytes_ += bytes;
  if (requests_ < std::max(window_rounds * depth_, window_requests_min)) {
    return;
  }
  const std::uint32_t before = depth_;
  window(window_bytes_, std::chrono::duration<double>(now - *window_begin_).count());
  requests_ = 0;
  window_bytes_ = 0;
  window_begin_ = now;
  skipping_ = depth_ != before;
}

std::uint32_t DepthController::window(std::uint64_t bytes, double seconds) {
  if (bytes == 0 || !(seconds > 0)) {
    return depth_;
  }
  const double throughput = static_cast<double>(bytes) / seconds;
  switch (stage_) {
    case Stage::starting:
      base_throughput_ = throughput;
      stage_ = Stage::settled;
      if (first_try_) {
        try_step();
      }
      break;
    case Stage::settled:
      stay(throughput);
      break;
    case Stage::trying:
      judge(throughput);
      break;
  }
  return depth_;
}

void DepthController::stay(double throughput) {
  base_throughput_ += (throughput - base_throughput_) * settled_share;
  if (++windows_here_ >= patience_) {
    try_step();
  }
}

void DepthController::try_step() {
  const std::uint32_t step = next_step();
  windows_here_ = 0;
  if (step == depth_) {
    deeper_ = !deeper_;
    stage_ = Stage::settled;
    return;
  }
  tried_throughput_ = 0;
  stage_ = Stage::trying;
  depth_ = step;
}

void DepthController::judge(double throughput) {
  tried_throughput_ += throughput;
  if (++windows_here_ < try_windows && !first_try_) {
    return;
  }
  const double tried = tried_throughput_ / windows_here_;
  if (tried > (first_try_ ? gain_first : gain_later) * base_throughput_) {
    // On in the same direction.
    patience_ = patience_min;
    settle(depth_, tried);
    try_step();
    return;
  }
  patience_ = first_try_ ? patience_min : std::min(2 * patience_, patience_max);
  first_try_ = false;
  deeper_ = !deeper_;
  settle(base_depth_, base_throughput_);
}

void DepthController::settle(std::uint32_t depth, double throughput) {
  base_throughput_ = throughput;
  base_depth_ = depth;
  depth_ = depth;
  stage_ = Stage::settled;
  windows_here_ = 0;
}

}  // namespace hippogriff
