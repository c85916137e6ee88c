// How much memory an array pins for data under way.
#include "array/array_queues.hpp"

#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

namespace hippogriff::ondemand {
namespace {

TEST(ArrayQueues, of_what_nobody_waits_for_are_enough) {
  StorageArrayOptions read;
  read.device = make_host_device({});
  StorageArrayOptions direct = read;
  direct.backing.is_direct = true;
  StorageArrayOptions written = direct;
  written.backing.writable = true;
  written.backing.files.emplace_back();
  direct.backing.files.emplace_back();
  const auto pending = [](StorageArrayOptions options, std::uint32_t queues) {
    options.queue_count = queues;
    return pending_queues(options);
  };
  EXPECT_EQ(pending(read, 64), 8U);
  EXPECT_EQ(pending(read, 16), 4U);
  EXPECT_EQ(pending(direct, 16), 8U) << "fewer ordinary ones than through the page cache";
  EXPECT_EQ(pending(written, 16), 4U);
  EXPECT_EQ(pending(written, 64), 16U);
  EXPECT_EQ(pending(direct, 4), 4U);
}

TEST(ArrayQueues, stage_as_much_as_the_cache_up_to_a_bound) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  const auto controller = std::make_shared<Controller>(make_system_storage(QueueKind::threads), 1);
  StorageArrayOptions read;
  read.backing.size_bytes = std::uint64_t{1} << 40;
  read.backing.files.emplace_back();
  read.device = make_host_device({});
  read.controller = controller;
  read.staged = true;
  StorageArrayOptions written = read;
  written.backing.writable = true;
  StorageArrayOptions direct = read;
  direct.backing.is_direct = true;
  const auto staging_bytes =
      [](StorageArrayOptions options, std::uint64_t cache_bytes, std::uint32_t line_bytes) {
        options.cache_bytes = cache_bytes;
        options.line_bytes = line_bytes;
        choose_queues(options);
        return std::uint64_t{options.queue_count} * options.queue_depth * line_bytes;
      };
  EXPECT_EQ(staging_bytes(written, 1024 * mib, 4096), 32 * mib);
  EXPECT_EQ(staging_bytes(written, 128 * mib, 4096), 32 * mib);
  EXPECT_EQ(staging_bytes(written, 64 * mib, 4096), 16 * mib);
  EXPECT_EQ(staging_bytes(written, 8 * mib, 4096), 2 * mib);
  EXPECT_EQ(staging_bytes(written, 4096, 4096), mib);
  EXPECT_EQ(staging_bytes(written, 1024 * mib, mib), 32 * mib);
  EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 16 * mib);
  EXPECT_EQ(staging_bytes(read, 32 * mib, 4096), 8 * mib);
  EXPECT_EQ(staging_bytes(read, 4096, 4096), mib);
  EXPECT_EQ(staging_bytes(direct, 1024 * mib, 4096), 4 * mib);
  EXPECT_EQ(staging_bytes(direct, 8 * mib, 4096), 2 * mib);
  EXPECT_EQ(staging_bytes(direct, 1024 * mib, 512), 4 * mib);
  EXPECT_EQ(staging_bytes(direct, 1024 * mib, 16384), 16 * mib);
  StorageArrayOptions striped = direct;
  striped.backing.files.emplace_back();
  EXPECT_EQ(staging_bytes(striped, 1024 * mib, 4096), 8 * mib);
  {
    const TestArray memory(
        {.in_memory = true, .staged = true, .device = read.device, .controller = controller});
    EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 16 * mib) << "nothing of it is staged";
    const TestArray elsewhere({.staged = true, .controller = controller});
    EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 16 * mib) << "of another device";
  }
  {
    const TestArray other({.staged = true, .device = read.device, .controller = controller});
    EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 8 * mib);
    EXPECT_EQ(staging_bytes(read, 8 * mib, 4096), 2 * mib);
    EXPECT_EQ(staging_bytes(written, 1024 * mib, 4096), 32 * mib);
  }
  EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 16 * mib) << "the other one is closed";
  read.backing.files.clear();
  EXPECT_EQ(staging_bytes(read, 1024 * mib, 4096), 32 * mib) << "of memory";
}

}  // namespace
}  // namespace hippogriff::ondemand
