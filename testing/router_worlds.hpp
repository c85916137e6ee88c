// Random machines, files and loads for promises of the router.
#pragma once

#include "transfer/calibration.hpp"
#include "transfer/route.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

namespace hippogriff::testing {

class RandomWorld {
 public:
  explicit RandomWorld(std::uint64_t seed) : random_(seed) {}

  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }

  // Evenly over orders of magnitude.
  double scale(double least, double most) {
    return std::exp(between(std::log(least), std::log(most)));
  }

  bool chance(double probability) { return between(0, 1) < probability; }

  Rate rate(double least, double most) { return {scale(least, most), scale(1e-12, 1e-9)}; }

  // What one thread does keeps about one core busy, never six.
  Rate thread_rate(double least, double most) {
    const double bytes_per_second = scale(least, most);
    return {bytes_per_second, between(0.2, 1.1) / bytes_per_second};
  }

  Calibration calibration() {
    Calibration made;
    made.link = {.to_device = {scale(1e9, 2e11), chance(0.7) ? 0 : scale(1e-12, 3e-10)},
                 .to_host = {scale(1e9, 2e11), chance(0.7) ? 0 : scale(1e-12, 3e-10)},
                 .latency_seconds = scale(1e-6, 1e-3),
                 .register_pages = thread_rate(1e9, 1e11),
                 .register_shared_memory = thread_rate(1e9, 1e11),
                 .register_new_pages = thread_rate(1e9, 1e11)};
    made.drive = {.direct_read = rate(5e7, 1e11),
                  .direct_write = rate(5e7, 1e11),
                  .latency_seconds = scale(1e-5, 1e-2),
                  .depth = 1 + static_cast<std::uint32_t>(scale(1, 128))};
    made.host.cached_read_per_channel = thread_rate(5e8, 3e10);
    made.host.cached_read_max = scale(1e9, 4e11);
    made.host.cached_write_per_channel = thread_rate(5e8, 3e10);
    made.host.cached_write_max = scale(1e9, 4e11);
    return made;
  }

  TransferFacts facts() {
    TransferFacts made;
    made.direction = chance(0.7) ? Direction::send : Direction::recv;
    made.size_bytes = static_cast<std::uint64_t>(scale(1, 64e9));
    made.cached_fraction = chance(0.3) ? 0 : chance(0.4) ? 1 : between(0, 1);
    made.in_memory = chance(0.2);
    made.direct_io = !made.in_memory && chance(0.8);
    made.device_ready = chance(0.85);
    made.parked_sends_wait = chance(0.15);
    made.host_addressable = chance(0.2);
    made.in_place = chance(0.6);
    made.can_map = chance(0.7);
    made.can_mix = chance(0.7);
    made.maps_aside = made.can_mix || chance(0.7);
    made.can_direct = made.host_addressable || chance(0.2);
    made.why_not_map = chance(0.5) ? "its pages cannot be registered" : "";
    made.why_not_direct = chance(0.5) ? "cuFile is not here" : "";
    made.cores = 1 + static_cast<std::uint32_t>(scale(1, 200));
    made.hashes = made.direction == Direction::send && made.host_addressable && chance(0.5);
    made.new_memory = made.direction == Direction::send && made.host_addressable && chance(0.5);
    return made;
  }

  TransferLoad load() {
    if (chance(0.5)) {
      return {};
    }
    return {.link_transfers = static_cast<std::uint32_t>(between(0, 5)),
            .drive_transfers = static_cast<std::uint32_t>(between(0, 5)),
            .busy_channels = static_cast<std::uint32_t>(between(0, 40))};
  }

  // Somebody, on the drive, the link or both.
  TransferLoad with_others(TransferLoad load) {
    load.others_on_drive = {.processes = static_cast<std::uint32_t>(between(0, 6)),
                            .bytes_per_second = scale(1e6, 1e11),
                            .requests = static_cast<std::uint32_t>(between(0, 64))};
    load.others_on_link = {.processes = static_cast<std::uint32_t>(between(0, 6)),
                           .bytes_per_second = scale(1e6, 1e11)};
    return load;
  }

 private:
  std::mt19937_64 random_;
};

inline constexpr std::uint64_t first_seed = 20260301;
inline constexpr std::uint64_t worlds = 5000;

struct World {
  std::uint64_t seed = 0;
  TransferFacts facts;
  TransferLoad load;
  Calibration calibration;
};

template <typename Check>
void in_random_worlds(Check&& check) {
  for (std::uint64_t index = 0; index < worlds; ++index) {
    RandomWorld random(first_seed + index);
    const World world{first_seed + index, random.facts(), random.load(), random.calibration()};
    check(world);
    if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) {
      FAIL() << "in the world of seed " << world.seed;
    }
  }
}

}  // namespace hippogriff::testing
