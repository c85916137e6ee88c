// Hill-climbing on the depth of direct requests.
#include "transfer/depth_controller.hpp"

#include <algorithm>

namespace hippogriff {
namespace {

// A step up must bring this much, and a step down must not cost as much.
constexpr double worthwhile = 1.03;

// Settled windows before the first probe; doubled by each probe that changes nothing.
constexpr std::uint32_t patience_min = 8;
constexpr std::uint32_t patience_max = 128;

// One window may lie; a probe listens to more.
constexpr std::uint32_t probe_windows = 3;

// The weight of a new window in what is known of a settled depth.
constexpr double settled_share = 0.25;

// A window is this many rounds of the queue.
constexpr std::uint32_t window_rounds = 2;
constexpr std::uint32_t window_requests_min = 8;

}  // namespace

DepthController::DepthController(std::uint32_t depth_start, std::uint32_t depth_max)
    : depth_max_(std::max(depth_max, 1U)),
      depth_(std::clamp(depth_start, 1U, depth_max_)),
      base_depth_(depth_),
      patience_(patience_min) {}

std::uint32_t DepthController::deeper() const {
  return std::min(depth_max_, depth_ + std::max(depth_ / 2, 1U));
}

std::uint32_t DepthController::shallower() const {
  return depth_ - std::min(depth_ - 1, std::max(depth_ / 3, 1U));
}

void DepthController::completed(std::uint64_t bytes, std::chrono::steady_clock::time_point now) {
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
      base_depth_ = depth_;
      if (deeper() != depth_) {
        move_to(deeper(), Stage::climbing);
      } else {
        move_to(shallower(), Stage::descending);
      }
      break;
    case Stage::climbing:
      climb(throughput);
      break;
    case Stage::descending:
      descend(throughput);
      break;
    case Stage::settled:
      stay(throughput);
      break;
    case Stage::probing:
      probe(throughput);
      break;
  }
  return depth_;
}

void DepthController::climb(double throughput) {
  if (throughput > worthwhile * base_throughput_) {
    base_throughput_ = throughput;
    base_depth_ = depth_;
    climbed_ = true;
    if (deeper() == depth_) {
      settle(depth_, throughput);
    } else {
      move_to(deeper(), Stage::climbing);
    }
    return;
  }
  depth_ = base_depth_;
  // Only where no step has helped is it unknown what lies below.
  if (!climbed_ && shallower() != depth_) {
    move_to(shallower(), Stage::descending);
  } else {
    settle(base_depth_, base_throughput_);
  }
}

void DepthController::descend(double throughput) {
  if (throughput * worthwhile < base_throughput_) {
    settle(base_depth_, base_throughput_);
    return;
  }
  base_depth_ = depth_;
  base_throughput_ = std::max(base_throughput_, throughput);
  if (shallower() == depth_) {
    settle(depth_, base_throughput_);
  } else {
    move_to(shallower(), Stage::descending);
  }
}

void DepthController::stay(double throughput) {
  base_throughput_ += (throughput - base_throughput_) * settled_share;
  if (++windows_here_ < patience_) {
    return;
  }
  base_depth_ = depth_;
  probe_deeper_ = !probe_deeper_;
  const std::uint32_t next = probe_deeper_ ? deeper() : shallower();
  if (next == depth_) {
    windows_here_ = 0;
    return;
  }
  probed_throughput_ = 0;
  move_to(next, Stage::probing);
}

void DepthController::probe(double throughput) {
  probed_throughput_ += throughput;
  if (++windows_here_ < probe_windows) {
    return;
  }
  const double probed = probed_throughput_ / probe_windows;
  const bool take = probe_deeper_ ? probed > worthwhile * base_throughput_
                                  : probed * worthwhile > base_throughput_;
  if (take) {
    patience_ = patience_min;
    settle(depth_, probed);
  } else {
    patience_ = std::min(2 * patience_, patience_max);
    settle(base_depth_, base_throughput_);
  }
}

void DepthController::settle(std::uint32_t depth, double throughput) {
  base_throughput_ = throughput;
  base_depth_ = depth;
  move_to(depth, Stage::settled);
}

void DepthController::move_to(std::uint32_t depth, Stage stage) {
  depth_ = depth;
  stage_ = stage;
  windows_here_ = 0;
}

}  // namespace hippogriff
