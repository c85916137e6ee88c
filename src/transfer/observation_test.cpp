// What the calibration learns from finished transfers, and from which it does not.
#include "transfer/observation.hpp"

#include "testing/runtime_fixture.hpp"
#include "transfer/calibration.hpp"
#include "transfer/outlook.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t gib = 1 << 30;

Calibration doubled(Calibration calibration, double factor) {
  for (Rate* rate : {&calibration.link.to_device,
                     &calibration.link.to_host,
                     &calibration.link.register_pages,
                     &calibration.link.register_shared_memory,
                     &calibration.link.register_new_pages,
                     &calibration.drive.direct_read,
                     &calibration.drive.direct_write,
                     &calibration.host.cached_read_per_channel,
                     &calibration.host.cached_write_per_channel}) {
    rate->bytes_per_second *= factor;
    rate->cpu_seconds_per_byte /= factor;
  }
  calibration.host.cached_write_max *= factor;
  return calibration;
}

struct LaneCase {
  const char* name;
  Observation seen;
  std::function<double(const Calibration&)> rate;
};

Observation observation(Lane lane, Direction direction, bool in_memory, double rate) {
  return {.lane = lane,
          .direction = direction,
          .in_memory = in_memory,
          .bytes = gib,
          .seconds = static_cast<double>(gib) / rate,
          .cpu_seconds = 0};
}

std::vector<LaneCase> lane_cases(const Calibration& truth) {
  const HostCalibration& host = truth.host;
  const LinkCalibration& link = truth.link;
  const DriveCalibration& drive = truth.drive;
  const auto seen = [](Lane lane, Direction direction, bool in_memory, const Rate& rate) {
    Observation made = observation(lane, direction, in_memory, rate.bytes_per_second);
    made.cpu_seconds = static_cast<double>(made.bytes) * rate.cpu_seconds_per_byte;
    return made;
  };
  constexpr auto send = Direction::send;
  constexpr auto recv = Direction::recv;
  return {
      {"cached reads",
       seen(Lane::buffered, send, false, host.cached_read_per_channel),
       [](const auto& c) { return c.host.cached_read_per_channel.bytes_per_second; }},
      {"cached writes",
       seen(Lane::buffered, recv, true, host.cached_write_per_channel),
       [](const auto& c) { return c.host.cached_write_per_channel.bytes_per_second; }},
      {"mapped",
       seen(Lane::mapped, send, false, link.register_pages),
       [](const auto& c) { return c.link.register_pages.bytes_per_second; }},
      {"mapped tmpfs",
       seen(Lane::mapped, send, true, link.register_shared_memory),
       [](const auto& c) { return c.link.register_shared_memory.bytes_per_second; }},
      {"mapped new pages",
       seen(Lane::mapped, recv, true, link.register_new_pages),
       [](const auto& c) { return c.link.register_new_pages.bytes_per_second; }},
      {"direct reads",
       seen(Lane::direct_io, send, false, drive.direct_read),
       [](const auto& c) { return c.drive.direct_read.bytes_per_second; }},
      {"direct writes",
       seen(Lane::direct_io, recv, false, drive.direct_write),
       [](const auto& c) { return c.drive.direct_write.bytes_per_second; }},
  };
}

TEST(Observation, ten_transfers_bring_a_rate_that_was_twice_or_half_within_a_tenth) {
  Calibration truth = default_calibration("GPU-1", "vda");
  // By the clock and by the CPU alike: threads that are never held up.
  truth.host.cached_read_per_channel.cpu_seconds_per_byte =
      1 / truth.host.cached_read_per_channel.bytes_per_second;
  truth.host.cached_write_per_channel.cpu_seconds_per_byte =
      1 / truth.host.cached_write_per_channel.bytes_per_second;
  for (const double wrong : {2.0, 0.5}) {
    for (const LaneCase& lane : lane_cases(truth)) {
      CalibrationStore store{std::filesystem::path()};
      store.put("GPU-1", "vda", doubled(truth, wrong));
      const double before = lane.rate(store.get("GPU-1", "vda"));
      EXPECT_NEAR(before / lane.rate(truth), wrong, 1e-9) << lane.name;
      for (int transfer = 0; transfer < 10; ++transfer) {
        store.observe("GPU-1", "vda", lane.seen);
      }
      EXPECT_NEAR(lane.rate(store.get("GPU-1", "vda")) / lane.rate(truth), 1, 0.1) << lane.name;
    }
  }
}

TEST(Observation, cpu_costs_are_learned_with_the_rates) {
  CalibrationStore store{std::filesystem::path()};
  Observation seen = observation(Lane::direct_io, Direction::send, false, 2e9);
  seen.cpu_seconds = 0.09 * static_cast<double>(gib) / 1e9;
  for (int transfer = 0; transfer < 15; ++transfer) {
    store.observe("GPU-1", "vda", seen);
  }
  EXPECT_NEAR(store.get("GPU-1", "vda").drive.direct_read.cpu_seconds_per_byte, 0.09e-9, 2e-12);
}

// Twelve channels on a full link each look half as fast by the clock.
TEST(Observation, channels_that_waited_for_the_link_do_not_look_slow) {
  CalibrationStore store{std::filesystem::path()};
  Observation seen = observation(Lane::buffered, Direction::send, false, 36e9);
  seen.channels = 12;
  seen.cpu_seconds = static_cast<double>(gib) / 6.2e9;
  for (int transfer = 0; transfer < 20; ++transfer) {
    store.observe("GPU-1", "vda", seen);
  }
  EXPECT_NEAR(store.get("GPU-1", "vda").host.cached_read_per_channel.bytes_per_second, 6.2e9, 2e8);
}

TEST(Observation, a_link_that_holds_its_channels_up_is_found_out) {
  for (const double truth : {12e9, 120e9}) {
    CalibrationStore store{std::filesystem::path()};
    Observation seen = observation(Lane::buffered, Direction::send, false, truth);
    seen.channels = 24;
    seen.cpu_seconds = static_cast<double>(gib) / 6.2e9;
    seen.transfer_bytes_per_second = truth;
    seen.link_idle_share = 0.02;
    for (int transfer = 0; transfer < 20; ++transfer) {
      store.observe("GPU-1", "vda", seen);
    }
    EXPECT_NEAR(store.get("GPU-1", "vda").link.to_device.bytes_per_second / truth, 1, 0.1);
  }
}

// As first transfers of processes are, which pin memory, and those whose data was late.
TEST(Observation, a_link_that_was_idle_is_not_called_slow) {
  CalibrationStore store{std::filesystem::path()};
  const double before = store.get("GPU-1", "vda").link.to_device.bytes_per_second;
  Observation seen = observation(Lane::buffered, Direction::send, false, before / 4);
  seen.channels = 9;
  seen.cpu_seconds = static_cast<double>(gib) / 7e9;
  seen.transfer_bytes_per_second = before / 4;
  for (const double idle : {-1.0, 0.15, 0.5, 1.0}) {
    seen.link_idle_share = idle;
    store.observe("GPU-1", "vda", seen);
    EXPECT_EQ(store.get("GPU-1", "vda").link.to_device.bytes_per_second, before) << idle;
  }
}

// Channels are as many as the link's rate wants: by that alone it would never be found out.
TEST(Observation, a_link_called_too_slow_is_tried_with_more_channels) {
  constexpr double truth = 50e9;
  constexpr double channel = 7e9;
  CalibrationStore store{std::filesystem::path()};
  Calibration wrong = default_calibration("GPU-1", "vda");
  wrong.link.to_device.bytes_per_second = 14e9;
  store.put("GPU-1", "vda", wrong);
  double got = 0;
  for (int transfer = 0; transfer < 60; ++transfer) {
    const double link = store.get("GPU-1", "vda").link.to_device.bytes_per_second;
    const double channels = std::max(1.0, std::ceil(0.97 * link / channel));
    got = std::min(0.95 * channels * channel, truth);
    Observation seen = observation(Lane::buffered, Direction::send, false, got);
    seen.channels = static_cast<std::uint32_t>(channels);
    seen.cpu_seconds = static_cast<double>(gib) / channel;
    seen.transfer_bytes_per_second = got;
    seen.link_idle_share = 1 - got / truth;
    store.observe("GPU-1", "vda", seen);
  }
  EXPECT_GE(got, 0.8 * truth);
  EXPECT_LE(store.get("GPU-1", "vda").link.to_device.bytes_per_second, 1.3 * truth);
}

TEST(Observation, windows_mapped_beside_reads_do_not_make_mapping_look_slow) {
  CalibrationStore store{std::filesystem::path()};
  const double before = store.get("GPU-1", "vda").link.register_pages.bytes_per_second;
  Observation seen = observation(Lane::mapped, Direction::send, false, before / 3);
  seen.transfer_bytes_per_second = 50e9;
  store.observe("GPU-1", "vda", seen);
  EXPECT_EQ(store.get("GPU-1", "vda").link.register_pages.bytes_per_second, before);
}

TEST(Observation, direct_transfers_show_that_a_rate_is_at_least_so_high) {
  for (const Direction direction : {Direction::send, Direction::recv}) {
    const bool sends = direction == Direction::send;
    CalibrationStore store{std::filesystem::path()};
    const Calibration before = store.get("host", "vda");
    Observation seen = observation(Lane::direct, direction, false, 9e9);
    seen.cpu_seconds = 1;
    seen.drive_bytes = seen.bytes;
    for (int transfer = 0; transfer < 20; ++transfer) {
      store.observe("host", "vda", seen);
    }
    const DriveCalibration drive = store.get("host", "vda").drive;
    const Rate& rate = sends ? drive.direct_read : drive.direct_write;
    EXPECT_NEAR(rate.bytes_per_second, 9e9, 2e8);
    // What the memory's new pages cost the CPU is no cost of the drive.
    EXPECT_EQ(rate.cpu_seconds_per_byte,
              (sends ? before.drive.direct_read : before.drive.direct_write).cpu_seconds_per_byte);
    EXPECT_EQ(store.get("host", "vda").host, before.host);

    seen = observation(Lane::direct, direction, false, 40e9);
    seen.channels = 4;
    for (int transfer = 0; transfer < 20; ++transfer) {
      store.observe("host", "vda", seen);
    }
    const HostCalibration host = store.get("host", "vda").host;
    const Rate& channel = sends ? host.cached_read_per_channel : host.cached_write_per_channel;
    EXPECT_NEAR(channel.bytes_per_second, 10e9, 2e8);
    EXPECT_EQ(store.get("host", "vda").drive, drive);
  }
}

TEST(Observation, what_teaches_nothing_changes_nothing) {
  CalibrationStore store{std::filesystem::path()};
  const auto before = store.get("GPU-1", "vda");
  Observation seen = observation(Lane::direct_io, Direction::send, false, 9e9);
  const auto expect_unchanged = [&](const Observation& each) {
    store.observe("GPU-1", "vda", each);
    EXPECT_EQ(store.get("GPU-1", "vda").drive, before.drive);
    EXPECT_EQ(store.get("GPU-1", "vda").host, before.host);
    EXPECT_EQ(store.get("GPU-1", "vda").link, before.link);
  };
  Observation each = seen;
  each.alone = false;
  expect_unchanged(each);
  each = seen;
  each.bytes = (16 << 20) - 1;
  expect_unchanged(each);
  for (const double bad : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    each = seen;
    each.seconds = bad;
    expect_unchanged(each);
  }
  each = seen;
  each.cpu_seconds = std::nan("");
  expect_unchanged(each);
  each = seen;
  each.lane = Lane::parked;
  expect_unchanged(each);
  each = seen;
  each.lane = Lane::direct;
  each.drive_bytes = each.bytes / 2;  // the rest through the page cache: neither's rate
  expect_unchanged(each);
  each.drive_bytes = each.bytes;
  // Slower than known: perhaps nobody asked for more.
  each.seconds =
      static_cast<double>(each.bytes) / (0.6 * before.drive.direct_read.bytes_per_second);
  expect_unchanged(each);
  each.drive_bytes = 0;
  each.seconds *= 100;
  expect_unchanged(each);
  store.observe(std::string(300, 'g'), "vda", seen);
  EXPECT_EQ(store.get(std::string(300, 'g'), "vda").drive, before.drive);
}

// What a runtime whose calibration is far too low knows after a send in place.
Calibration after_direct_send(const std::string& path, bool cold) {
  const std::uint64_t size = std::uint64_t{32} << 20;
  if (cold) {
    drop_cache(path, 0, size);
  }
  Runtime runtime(test_settings(), make_system_storage(), {plain_device()});
  const auto file = runtime.storage().open(path, FileAccess::read);
  const std::string drive = drive_key(file->facts());
  runtime.calibration().put("host", drive, doubled(default_calibration("host", drive), 1e-3));
  Submission submission;
  submission.path = path;
  submission.route = Route::direct;
  const auto transfer = runtime.submit(submission);
  EXPECT_TRUE(transfer->wait(std::chrono::milliseconds(60'000)));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_TRUE(runtime.free(transfer->address()));
  EXPECT_TRUE(runtime.shutdown(std::chrono::milliseconds(10'000)));
  return runtime.calibration().get("host", drive);
}

TEST(Observation, direct_transfers_teach_the_runtime) {
  const TemporaryFolder folder;
  const std::string path = folder.file("taught");
  write_whole(path, random_bytes(std::size_t{32} << 20, 3));
  const Calibration low = doubled(default_calibration("host", ""), 1e-3);
  const Calibration warm = after_direct_send(path, false);
  EXPECT_GT(warm.host.cached_read_per_channel.bytes_per_second,
            2 * low.host.cached_read_per_channel.bytes_per_second);
  EXPECT_LT(warm.drive.direct_read.bytes_per_second, 1e7);
  if (make_system_storage()->open(path, FileAccess::read)->facts().direct) {
    const Calibration cold = after_direct_send(path, true);
    EXPECT_GT(cold.drive.direct_read.bytes_per_second, 1e7);
    EXPECT_EQ(cold.host.cached_read_per_channel, low.host.cached_read_per_channel);
  }
  const std::string sparse = folder.file("sparse");
  std::ofstream(sparse).put(0);
  std::filesystem::resize_file(sparse, std::size_t{32} << 20);
  for (const bool is_cold : {false, true}) {
    const Calibration holes = after_direct_send(sparse, is_cold);
    EXPECT_EQ(holes.drive.direct_read, low.drive.direct_read);
    EXPECT_EQ(holes.host, low.host);
  }
}

TEST(Observation, direct_transfers_lower_a_rate_that_is_far_too_high) {
  CalibrationStore store{std::filesystem::path()};
  Observation seen = observation(Lane::direct, Direction::send, false, 26e9);
  seen.drive_bytes = seen.bytes;
  const auto see = [&](double rate) {
    seen.seconds = static_cast<double>(seen.bytes) / rate;
    for (int transfer = 0; transfer < 30; ++transfer) {
      store.observe("host", "vda", seen);
    }
    return store.get("host", "vda").drive.direct_read.bytes_per_second;
  };
  const double high = see(26e9);
  EXPECT_GT(high, 25e9);
  EXPECT_EQ(see(20e9), high);  // nobody may have asked for more
  EXPECT_LT(see(3e9), 6.1e9);
}

void learn_and_ask(CalibrationStore& store, const std::string& device) {
  for (int round = 0; round < 50; ++round) {
    store.observe(device, "vda", observation(Lane::direct_io, Direction::send, false, 3e9));
    EXPECT_GT(store.get(device, "vda").drive.direct_read.bytes_per_second, 0);
    if (round % 10 == 0) {
      store.save();
    }
  }
}

TEST(Observation, learning_and_asking_from_many_threads_is_safe) {
  const auto file = std::filesystem::path(::testing::TempDir()) /
                    ("hippogriff-learning-" + std::to_string(::getpid()) + ".json");
  CalibrationStore store(file);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back(learn_and_ask, std::ref(store), "GPU-" + std::to_string(index % 2));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_NEAR(store.get("GPU-0", "vda").drive.direct_read.bytes_per_second, 3e9, 3e7);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace hippogriff
