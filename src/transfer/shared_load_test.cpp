// What others' transfers add up to for one of ours.
#include "transfer/shared_load.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hippogriff {
namespace {

using node::SeenTransfer;
using node::TransferPhase;

constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::uint64_t gpu = 11;

SeenTransfer seen(std::uint32_t client, node::ShownTransfer shown = {}) {
  shown.device = shown.device == 0 ? gpu : shown.device;
  shown.bytes_total = 4'000'000'000;
  shown.bytes_done = 2'000'000'000;
  return {.client = client, .pid = 100 + client, .shown = std::move(shown)};
}

TransferLoad load_of(const std::vector<SeenTransfer>& others,
                     Direction direction = Direction::send) {
  TransferLoad load;
  add_others(load, others, {.device = gpu, .drive = "vda", .direction = direction}, 2 * second_ns);
  return load;
}

TEST(SharedLoad, counts_processes_once_and_adds_what_they_move) {
  const TransferLoad load = load_of({seen(1, {.drive = "vda", .drive_requests = 4}),
                                     seen(1, {.drive = "vda", .drive_requests = 2}),
                                     seen(2, {.drive = "vda", .drive_requests = 3})});
  EXPECT_EQ(load.others_on_drive.processes, 2U);
  EXPECT_EQ(load.others_on_drive.requests, 9U);
  EXPECT_NEAR(load.others_on_drive.bytes_per_second, 3e9, 1);
  EXPECT_EQ(load.others_on_link.processes, 2U);
  EXPECT_TRUE(any_others(load));
}

TEST(SharedLoad, other_drives_devices_and_directions_are_nothing_to_us) {
  const TransferLoad load =
      load_of({seen(1, {.device = 12, .drive = "vdb"}), seen(2, {.drive = "", .sends = false})});
  EXPECT_EQ(load.others_on_drive.processes, 0U);
  EXPECT_EQ(load.others_on_link.processes, 0U);
  EXPECT_FALSE(any_others(load));
  EXPECT_EQ(
      load_of({seen(2, {.drive = "", .sends = false})}, Direction::recv).others_on_link.processes,
      1U);
}

TEST(SharedLoad, what_waits_loads_nothing_and_what_parks_loads_the_drive_alone) {
  const TransferLoad load =
      load_of({seen(1, {.drive = "vda", .phase = TransferPhase::waiting, .wants_memory = true}),
               seen(2, {.drive = "vda", .phase = TransferPhase::parking, .wants_memory = true})});
  EXPECT_EQ(load.others_on_drive.processes, 1U);
  EXPECT_EQ(load.others_on_link.processes, 0U);
  EXPECT_EQ(load.others_want_memory, 2U);
}

TEST(SharedLoad, who_moves_data_from_or_to_a_drive_needs_it_and_who_waits_or_parks_does_not) {
  const std::vector<SeenTransfer> idle = {
      seen(1, {.drive = "vda", .phase = TransferPhase::waiting}),
      seen(2, {.drive = "vda", .phase = TransferPhase::parking}),
      seen(3, {.drive = "vdb"}),
      seen(4, {.drive = ""})};
  EXPECT_FALSE(any_needs_drive(idle, "vda"));
  EXPECT_FALSE(any_needs_drive(idle, ""));
  EXPECT_TRUE(any_needs_drive(idle, "vdb"));
  EXPECT_TRUE(any_needs_drive(std::vector{seen(1, {.drive = "vda", .sends = false})}, "vda"));
}

TEST(SharedLoad, a_drive_without_a_name_is_shared_with_nobody) {
  TransferLoad load;
  const std::vector<SeenTransfer> others = {seen(1)};
  add_others(load, others, {.device = 99, .drive = "", .direction = Direction::send}, second_ns);
  EXPECT_FALSE(any_others(load));
}

TEST(SharedLoad, names_that_the_board_cuts_are_found_again) {
  TransferLoad load;
  const std::string name = "fuse.a-long-name-of-a-file-system";
  const std::vector<SeenTransfer> others = {
      seen(1, {.drive = name.substr(0, node::drive_name_max)})};
  add_others(load, others, {.device = 99, .drive = name, .direction = Direction::send}, second_ns);
  EXPECT_EQ(load.others_on_drive.processes, 1U);
}

TEST(SharedLoad, plans_are_told_by_threads_and_requests) {
  node::ShownTransfer shown;
  shown.drive = "vda";
  describe_plan(shown, Route::pipelined, {.buffered_channels = 3, .direct_io_depth = 8});
  EXPECT_EQ(shown.channels, 4);
  EXPECT_EQ(shown.drive_requests, 8);
  describe_plan(shown, Route::pipelined, {.buffered_channels = 3});
  EXPECT_EQ(shown.drive_requests, 3) << "threads that wait for the drive";
  shown.drive.clear();
  describe_plan(shown, Route::pipelined, {.buffered_channels = 3});
  EXPECT_EQ(shown.drive_requests, 0);
}

}  // namespace
}  // namespace hippogriff
