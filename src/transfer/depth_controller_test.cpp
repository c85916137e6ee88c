// The depth controller against simulated drives.
#include "transfer/depth_controller.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <queue>
#include <random>
#include <vector>

namespace hippogriff {
namespace {

// Throughput grows with the depth up to `saturation`; each window is off by up to `noise`.
struct SimulatedDrive {
  double saturation = 4;
  double peak_bytes_per_second = 2e9;
  double noise = 0;
  double loss_beyond = 0;  // per request beyond twice the saturation
  std::mt19937_64 random{1};

  [[nodiscard]] double throughput(std::uint32_t depth) const {
    const double reached = peak_bytes_per_second * std::min(1.0, depth / saturation);
    return reached * (1 - std::clamp(loss_beyond * (depth - 2 * saturation), 0.0, 0.9));
  }

  double window_seconds(std::uint32_t depth, double bytes) {
    std::uniform_real_distribution<double> off(1 - noise, 1 + noise);
    return bytes / (throughput(depth) * off(random));
  }
};

constexpr std::uint64_t window_bytes = 64 << 20;
constexpr auto guessed = DepthController::Start::guessed;
constexpr auto measured = DepthController::Start::measured;

std::vector<std::uint32_t> depths_over(DepthController& controller,
                                       SimulatedDrive& drive,
                                       int windows) {
  std::vector<std::uint32_t> depths;
  for (int index = 0; index < windows; ++index) {
    const double bytes = window_bytes;
    depths.push_back(
        controller.window(window_bytes, drive.window_seconds(controller.depth(), bytes)));
  }
  return depths;
}

std::uint32_t step_up(std::uint32_t depth) {
  return depth + depth / 2;
}

std::uint32_t step_down(std::uint32_t depth) {
  return std::max(2U, depth - std::max(depth / 3, 1U));
}

// What a drive gives at the depths chosen, as a share of its peak.
double mean_share(const SimulatedDrive& drive, const std::vector<std::uint32_t>& depths) {
  double sum = 0;
  for (const std::uint32_t depth : depths) {
    sum += drive.throughput(depth);
  }
  return sum / drive.peak_bytes_per_second / static_cast<double>(depths.size());
}

TEST(DepthController, begins_with_the_planned_depth_within_bounds) {
  EXPECT_EQ(DepthController(4, 16, guessed).depth(), 4U);
  EXPECT_EQ(DepthController(0, 16, guessed).depth(), 2U);
  EXPECT_EQ(DepthController(99, 16, guessed).depth(), 16U);
  EXPECT_EQ(DepthController(4, 0, guessed).depth(), 2U);
}

TEST(DepthController, reaches_the_saturation_of_a_quiet_drive_from_any_start_and_stays) {
  for (const std::uint32_t saturation : {1U, 2U, 3U, 4U, 6U, 8U, 13U, 24U, 32U}) {
    for (const std::uint32_t start : {2U, 4U, 8U, 16U, 32U}) {
      DepthController controller(start, 32, guessed);
      SimulatedDrive drive{.saturation = static_cast<double>(saturation)};
      const auto depths = depths_over(controller, drive, 60);
      const std::vector<std::uint32_t> late(depths.begin() + 20, depths.end());
      // Tries of a shallower depth cost some.
      EXPECT_GT(mean_share(drive, late), 0.93) << "saturation " << saturation << " start " << start;
      // Nothing is gained deeper than that, but by tries.
      const std::uint32_t enough = std::max(start, step_up(saturation));
      EXPECT_LE(*std::max_element(late.begin(), late.end()), std::min(32U, step_up(enough)));
    }
  }
}

TEST(DepthController, loses_little_of_a_drive_whose_windows_vary) {
  constexpr int drives = 200;
  constexpr int windows = 160;
  std::mt19937_64 random(20261122);
  for (const double noise : {0.03, 0.15}) {
    double share = 0;
    for (int index = 0; index < drives; ++index) {
      SimulatedDrive drive;
      drive.saturation = 1 + static_cast<double>(random() % 16);
      drive.noise = noise;
      drive.random.seed(random());
      DepthController controller(2 + static_cast<std::uint32_t>(random() % 7), 32, guessed);
      const auto depths = depths_over(controller, drive, windows);
      share += mean_share(drive, {depths.begin() + 20, depths.end()}) / drives;
    }
    std::printf("noise %.0f %%: %.1f %% of the peak\n", 100 * noise, 100 * share);
    EXPECT_GT(share, 0.96);
  }
}

// The virtual drives that this is tuned for: two requests are best, more cost up to a fifth.
TEST(DepthController, stays_at_two_requests_where_more_are_slower) {
  std::mt19937_64 random(5);
  double share = 0;
  constexpr int drives = 100;
  for (int index = 0; index < drives; ++index) {
    SimulatedDrive drive{.saturation = 1, .noise = 0.1, .loss_beyond = 0.06};
    drive.random.seed(random());
    DepthController controller(2, 16, guessed);
    share += mean_share(drive, depths_over(controller, drive, 60)) / drives;
  }
  EXPECT_GT(share, 0.985);
}

TEST(DepthController, moves_one_step_at_a_time_and_stays_within_bounds_on_a_mad_drive) {
  std::mt19937_64 random(7);
  DepthController controller(8, 16, guessed);
  std::uint32_t before = controller.depth();
  for (int index = 0; index < 5000; ++index) {
    const double seconds = std::exp(std::uniform_real_distribution<double>(-9, 2)(random));
    const std::uint32_t depth = controller.window(random() % window_bytes, seconds);
    ASSERT_GE(depth, 2U);
    ASSERT_LE(depth, 16U);
    ASSERT_LE(depth, step_up(before));
    ASSERT_GE(depth, std::min(step_down(before), before));
    before = depth;
  }
}

TEST(DepthController, comes_back_when_the_drive_gets_worse_with_depth) {
  DepthController controller(32, 64, guessed);
  SimulatedDrive drive{.saturation = 4, .loss_beyond = 0.02};
  const auto depths = depths_over(controller, drive, 60);
  EXPECT_GT(drive.throughput(depths.back()), 0.9 * drive.peak_bytes_per_second) << depths.back();
}

TEST(DepthController, follows_a_drive_that_changes) {
  DepthController controller(4, 32, guessed);
  SimulatedDrive drive{.saturation = 4};
  depths_over(controller, drive, 40);
  drive.saturation = 12;
  drive.peak_bytes_per_second *= 3;
  const auto depths = depths_over(controller, drive, 400);
  EXPECT_GT(drive.throughput(depths.back()), 0.9 * drive.peak_bytes_per_second) << depths.back();
}

TEST(DepthController, windows_that_tell_nothing_change_nothing) {
  DepthController controller(4, 16, guessed);
  EXPECT_EQ(controller.window(0, 1), 4U);
  EXPECT_EQ(controller.window(window_bytes, 0), 4U);
  EXPECT_EQ(controller.window(window_bytes, -1), 4U);
  EXPECT_EQ(controller.window(window_bytes, std::nan("")), 4U);
}

// Requests one by one: the drive serves them in order after a latency, as a real queue does.
TEST(DepthController, finds_the_depth_from_completions_alone) {
  using Clock = std::chrono::steady_clock;
  constexpr double latency_seconds = 10e-3;
  constexpr double service_seconds = 2e-3;  // saturates at a depth of 6
  constexpr std::uint64_t request_bytes = 4 << 20;
  DepthController controller(2, 64, guessed);
  std::queue<double> in_flight;
  double now = 0;
  double drive_free = 0;
  std::uint32_t deepest_late = 0;
  for (int done = 0; done < 6000; ++done) {
    while (in_flight.size() < controller.depth()) {
      drive_free = std::max(drive_free, now) + service_seconds;
      in_flight.push(drive_free + latency_seconds);
    }
    now = std::max(now, in_flight.front());
    in_flight.pop();
    controller.completed(request_bytes,
                         Clock::time_point(std::chrono::duration_cast<Clock::duration>(
                             std::chrono::duration<double>(now))));
    deepest_late = done > 3000 ? std::max(deepest_late, controller.depth()) : 0;
  }
  EXPECT_GE(controller.depth(), 5U);
  EXPECT_LE(deepest_late, step_up(step_up(6)));
}

TEST(DepthController, a_measured_depth_is_left_seldom_but_a_wrong_one_in_the_end) {
  SimulatedDrive drive{.saturation = 2};
  DepthController right(2, 16, measured);
  const auto depths = depths_over(right, drive, 60);
  EXPECT_EQ(std::count(depths.begin(), depths.end(), 2U), 60);
  SimulatedDrive other{.saturation = 8};
  DepthController wrong(2, 16, measured);
  depths_over(wrong, other, 100);
  EXPECT_GE(mean_share(other, depths_over(wrong, other, 100)), 0.95);
}

TEST(DepthController, is_no_deeper_than_its_bound_and_goes_on_where_it_was_when_that_is_lifted) {
  DepthController controller(8, 16, measured);
  auto now = std::chrono::steady_clock::time_point{};
  const auto complete = [&](int requests) {
    for (int request = 0; request < requests; ++request) {
      now += std::chrono::microseconds(500);
      controller.completed(1 << 20, now);
    }
  };
  controller.bound(3);
  EXPECT_EQ(controller.depth(), 3U);
  complete(10'000);
  EXPECT_EQ(controller.depth(), 3U);
  controller.bound(0);
  EXPECT_EQ(controller.depth(), 2U) << "one request alone leaves the drive idle";
  controller.bound(std::numeric_limits<std::uint32_t>::max());
  EXPECT_EQ(controller.depth(), 8U);
  complete(100);
  EXPECT_EQ(controller.depth(), 8U) << "what it got beside others tells nothing of the drive";
}

}  // namespace
}  // namespace hippogriff
