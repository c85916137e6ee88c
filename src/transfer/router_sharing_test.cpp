// The router beside other processes.
#include "testing/router_worlds.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/router.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace hippogriff {
namespace {

using hippogriff::testing::in_random_worlds;
using hippogriff::testing::RandomWorld;
using hippogriff::testing::World;

// What a plan does at the same time.
std::uint32_t width(const Plan& plan) {
  return plan.direct_channels + plan.mapped_channels + plan.buffered_channels +
         plan.direct_io_depth;
}

TEST(RouterPromise, beside_other_processes_no_plan_is_wider_and_none_is_predicted_faster) {
  in_random_worlds([](const World& world) {
    RandomWorld random(world.seed ^ 0x07E5);
    const TransferLoad beside = random.with_others(world.load);
    const auto alone = choose_route(world.facts, world.load, world.calibration, Route::automatic);
    const auto shared = choose_route(world.facts, beside, world.calibration, Route::automatic);
    for (std::size_t index = 0; index < alone.predictions.size(); ++index) {
      const RoutePrediction& one = alone.predictions[index];
      const RoutePrediction& other = shared.predictions[index];
      ASSERT_EQ(one.possible, other.possible);
      ASSERT_LE(width(other.plan), width(one.plan)) << route_name(one.route);
      ASSERT_LE(other.plan.direct_io_depth, one.plan.direct_io_depth) << route_name(one.route);
      // Transfers of one process are taken to want all of the drive's requests each, and share them
      // only beside other processes: there few threads are a larger part of them.
      if (world.load.drive_transfers == 0) {
        ASSERT_GE(other.seconds, 0.90 * one.seconds) << route_name(one.route);
      }
    }
  });
}

TEST(RouterPromise, what_others_move_and_wait_for_changes_nothing_where_none_shares_drive_or_link) {
  in_random_worlds([](const World& world) {
    TransferLoad unrelated = world.load;
    unrelated.others_want_memory = 3;
    const auto alone = choose_route(world.facts, world.load, world.calibration, Route::automatic);
    const auto shared = choose_route(world.facts, unrelated, world.calibration, Route::automatic);
    ASSERT_EQ(alone.chosen, shared.chosen);
    for (std::size_t index = 0; index < alone.predictions.size(); ++index) {
      ASSERT_EQ(alone.predictions[index].plan, shared.predictions[index].plan);
      ASSERT_EQ(alone.predictions[index].seconds, shared.predictions[index].seconds);
      ASSERT_EQ(alone.predictions[index].cpu_seconds, shared.predictions[index].cpu_seconds);
    }
  });
}

// Three processes at a drive of depth 4 have a request each, which is three quarters of it: one
// thread that reads through the page cache was taken to get nine tenths.
TEST(Router, what_is_cold_goes_past_the_page_cache_however_many_share_the_drive) {
  for (std::uint32_t depth = 1; depth <= 32; ++depth) {
    for (std::uint32_t others = 0; others <= 16; ++others) {
      Calibration calibration = default_calibration("cuda:0", "vda");
      calibration.drive.depth = depth;
      calibration.drive.measured = true;
      TransferFacts facts;
      facts.size_bytes = std::uint64_t{1} << 30;
      facts.direct_io = true;
      facts.cores = 16;
      TransferLoad load;
      load.others_on_drive.processes = others;
      load.others_on_link.processes = others;
      const Plan plan = choose_route(facts, load, calibration, Route::automatic).choice().plan;
      EXPECT_GT(plan.direct_io_depth, 0U) << depth << " for " << others + 1;
      EXPECT_EQ(plan.buffered_channels, 0U) << depth << " for " << others + 1;
    }
  }
}

TEST(RouterPromise, the_requests_of_all_processes_together_do_what_keeps_the_drive_busy) {
  for (std::uint32_t depth = 1; depth <= 128; ++depth) {
    for (std::uint32_t processes = 1; processes <= 32; ++processes) {
      const TransferLoad load{.others_on_drive = {.processes = processes - 1}};
      const std::uint32_t share = drive_depth_share(depth, load);
      EXPECT_GE(share, 1U);
      EXPECT_LE(share * processes, std::max(depth, processes)) << depth << " for " << processes;
      EXPECT_GT((share + 1) * processes, depth) << "no room is left for one more each";
    }
  }
}

TEST(Router, processes_that_read_one_drive_at_once_share_its_depth) {
  TransferFacts cold;
  cold.size_bytes = std::uint64_t{4} << 30;
  cold.direct_io = true;
  cold.why_not_direct = "no GPUDirect Storage here";
  cold.cores = 16;
  Calibration calibration = default_calibration("cuda:0", "nvme0n1");
  calibration.drive.depth = 16;
  const auto depth_beside = [&](std::uint32_t processes) {
    const auto decision = choose_route(
        cold, {.others_on_drive = {.processes = processes}}, calibration, Route::automatic);
    return decision.choice().plan.direct_io_depth;
  };
  EXPECT_EQ(depth_beside(0), 16U);
  EXPECT_EQ(depth_beside(1), 8U);
  EXPECT_EQ(depth_beside(3), 4U);
  EXPECT_EQ(depth_beside(100), 1U);
  const auto alone = choose_route(cold, {}, calibration, Route::automatic);
  const auto fourth =
      choose_route(cold, {.others_on_drive = {.processes = 3}}, calibration, Route::automatic);
  EXPECT_NEAR(fourth.choice().seconds / alone.choice().seconds, 4, 0.1);
}

}  // namespace
}  // namespace hippogriff
