// Checksums of blocks on every device there is: host memory, a simulated link, a GPU or its fake.
#include "checksum/device_checksum.hpp"

#include "checksum/host_checksum.hpp"
#include "checksum/xxh3_host.hpp"
#include "device/cuda_device.hpp"
#include "device/host_device.hpp"
#include "testing/bytes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::chrono::seconds patience{60};
constexpr std::size_t memory_bytes = std::size_t{24} << 20;

std::vector<std::uint64_t> oracle(std::span<const MemoryPart> parts,
                                  std::uint64_t block_bytes,
                                  const std::vector<std::byte>& bytes,
                                  DeviceAddress base) {
  std::vector<std::uint64_t> checksums;
  for (const MemoryPart& part : parts) {
    const std::byte* begin = bytes.data() + (part.address.value - base.value);
    for (std::uint64_t offset = 0; offset < part.size_bytes; offset += block_bytes) {
      checksums.push_back(xxh3_of(begin + offset, std::min(block_bytes, part.size_bytes - offset)));
    }
  }
  return checksums;
}

// Parts of all small sizes and some large ones, at all alignments.
std::vector<MemoryPart> random_parts(DeviceAddress base, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<MemoryPart> parts;
  for (std::uint64_t size = 0; size < 1500; ++size) {
    parts.push_back({base + random() % (memory_bytes - size), size});
  }
  for (int round = 0; round < 100; ++round) {
    const std::uint64_t size = random() % (memory_bytes / 16);
    parts.push_back({base + random() % (memory_bytes - size), size});
  }
  return parts;
}

// Device memory with random bytes, which the host has too.
class DeviceChecksumTest : public ::testing::Test {
 protected:
  void use(std::shared_ptr<Device> device) {
    device_ = std::move(device);
    scope_.emplace(*device_);
    base_ = device_->allocate(memory_bytes);
    const auto stream = device_->create_stream();
    const auto event = device_->create_event();
    stream->copy_to_device(base_, bytes_.data(), bytes_.size());
    stream->record(*event);
    ASSERT_TRUE(wait_for(*event, patience));
    checksum_ = std::make_unique<DeviceChecksum>(device_, patience);
  }

  void TearDown() override {
    checksum_.reset();
    if (device_ != nullptr) {
      device_->release(base_);
    }
    scope_.reset();
  }

  std::vector<std::uint64_t> compute(std::span<const MemoryPart> parts,
                                     std::uint64_t block_bytes,
                                     Event* after = nullptr) {
    std::vector<std::uint64_t> checksums(count_blocks(parts, block_bytes));
    checksum_->compute(parts, block_bytes, after, 4, checksums);
    return checksums;
  }

  void expect_right(std::uint64_t seed, std::uint64_t block_bytes) {
    const auto parts = random_parts(base_, seed);
    EXPECT_EQ(compute(parts, block_bytes), oracle(parts, block_bytes, bytes_, base_))
        << "seed " << seed << ", blocks of " << block_bytes;
  }

  void expect_right_for_all_blocks() {
    for (const std::uint64_t block_bytes : {1000U, 4096U, 65536U, 1U << 18, 1U << 20, 1U << 25}) {
      expect_right(block_bytes, block_bytes);
    }
  }

  // `memory` that is written by work on a stream, behind which the checksum goes.
  void expect_waits_for_the_work_before() {
    const auto other = random_bytes(memory_bytes, 77);
    const auto stream = device_->create_stream();
    const auto event = device_->create_event();
    stream->launch([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
    stream->copy_to_device(base_, other.data(), other.size());
    stream->record(*event);
    const std::vector<MemoryPart> parts{{base_, memory_bytes}};
    EXPECT_EQ(compute(parts, 1 << 20, event.get()), oracle(parts, 1 << 20, other, base_));
  }

  void expect_right_on_threads() {
    const auto work = [this](std::uint64_t seed) {
      const DeviceScope scope(*device_);
      expect_right(seed, 1 << 18);
    };
    std::vector<std::jthread> threads;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      threads.emplace_back(work, seed);
    }
  }

  const std::vector<std::byte> bytes_ = random_bytes(memory_bytes, 5);
  std::shared_ptr<Device> device_;
  std::optional<DeviceScope> scope_;
  DeviceAddress base_;
  std::unique_ptr<DeviceChecksum> checksum_;
};

TEST_F(DeviceChecksumTest, of_host_memory_are_the_librarys) {
  use(make_host_device({}));
  expect_right_for_all_blocks();
  EXPECT_EQ(checksum_->why_copied(), "");
  expect_waits_for_the_work_before();
}

TEST_F(DeviceChecksumTest, of_host_memory_are_right_on_many_threads) {
  use(make_host_device({}));
  expect_right_on_threads();
}

TEST_F(DeviceChecksumTest, of_memory_behind_a_link_are_computed_from_copies) {
  HostDeviceOptions options;
  options.link_bytes_per_second = 1e10;
  use(make_host_device(options));
  expect_right(1, 1 << 18);
  expect_right(2, 1 << 25);
  expect_right_on_threads();
  expect_waits_for_the_work_before();
  EXPECT_EQ(checksum_->why_copied(), "device host runs no kernels");
}

class CudaChecksumTest : public DeviceChecksumTest {
 protected:
  void SetUp() override {
    if (cuda_presence().device_count == 0) {
      GTEST_SKIP() << "no CUDA device: " << cuda_presence().why_not;
    }
    use(make_cuda_device(0));
  }
};

TEST_F(CudaChecksumTest, of_device_memory_are_computed_by_the_kernel) {
  expect_right_for_all_blocks();
  EXPECT_EQ(checksum_->why_copied(), "");
}

TEST_F(CudaChecksumTest, of_device_memory_wait_for_the_work_before) {
  expect_waits_for_the_work_before();
}

TEST_F(CudaChecksumTest, of_device_memory_are_right_on_many_threads) {
  expect_right_on_threads();
}

// More than one launch takes.
TEST_F(CudaChecksumTest, of_very_many_parts_are_right) {
  std::vector<MemoryPart> parts;
  for (std::uint64_t index = 0; index < 70'000; ++index) {
    parts.push_back({base_ + 300 * index, 1 + index % 300});
  }
  EXPECT_EQ(compute(parts, 4096), oracle(parts, 4096, bytes_, base_));
}

TEST(CountBlocks, refuses_what_is_beyond_any_memory) {
  const std::vector<MemoryPart> parts{{{1}, INT64_MAX}, {{1}, 1}};
  EXPECT_THROW(count_blocks(parts, 1), Error);
  const std::vector<MemoryPart> wrapping{{{UINT64_MAX}, 2}};
  EXPECT_THROW(count_blocks(wrapping, 1), Error);
  EXPECT_THROW(count_blocks({}, 0), Error);
  EXPECT_EQ(count_blocks(std::vector<MemoryPart>{{{1}, 0}, {{1}, 5}}, 2), 3U);
}

TEST(BlockQueue, claims_stop_where_enough_was_taken) {
  const std::vector<MemoryPart> parts{{{1000}, 5}, {{2000}, 0}, {{3000}, 4}};
  BlockQueue queue(parts, 2);
  std::array<MemoryPart, 8> blocks;
  EXPECT_EQ(queue.claim(blocks, 3).count, 2U);
  const ClaimedBlocks rest = queue.claim(blocks, 100);
  EXPECT_EQ(rest.first, 2U);
  EXPECT_EQ(rest.count, 3U);
  EXPECT_EQ(blocks[0].address.value, 1004U);
  EXPECT_EQ(blocks[0].size_bytes, 1U);
  EXPECT_EQ(blocks[2].address.value, 3002U);
  EXPECT_EQ(queue.claim(blocks, 100).count, 0U);
}

}  // namespace
}  // namespace hippogriff
