// Copies that wait for their turn: all of them arrive, together or alone, whoever fails or goes.
#include "transfer/copy_stream.hpp"

#include "device/host_device.hpp"
#include "testing/bytes.hpp"
#include "testing/device_faults.hpp"
#include "testing/faulty_device.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t piece_bytes = 64 << 10;
constexpr std::size_t queued_max = 8;  // small copies that are queued one by one
constexpr std::size_t pieces = queued_max + 4;
constexpr std::chrono::seconds patience{60};

class CopyStreamTest : public ::testing::Test {
 protected:
  ~CopyStreamTest() override {
    faults->clear();
    copies.clear();
    EXPECT_TRUE(stream.drain());
    device->release(memory);
  }

  std::unique_ptr<StreamCopy>& start(std::size_t index) {
    copies.push_back(stream.create_copy());
    stream.start_to_device(*copies.back(), part(index));
    return copies.back();
  }

  // From here on copies wait.
  void fill_queue() {
    faults->hold(DeviceOperation::copy_to_device, 1);
    for (std::size_t index = 0; index < queued_max; ++index) {
      start(index);
    }
  }

  // What is held goes on.
  void release() {
    EXPECT_TRUE(faults->wait_until_held(1, patience));
    faults->release_held();
  }

  // In two, as where a piece goes to two places.
  [[nodiscard]] std::vector<CopyPart> part(std::size_t index) const {
    const std::size_t at = index * piece_bytes;
    const std::size_t half = piece_bytes / 2;
    return {{memory + at, sent.data() + at, half},
            {memory + at + half, sent.data() + at + half, half}};
  }

  [[nodiscard]] bool arrived(std::size_t index) const {
    const auto* there = reinterpret_cast<const std::byte*>(memory.value);
    return std::memcmp(there + index * piece_bytes, &sent[index * piece_bytes], piece_bytes) == 0;
  }

  const std::shared_ptr<DeviceFaults> faults = std::make_shared<DeviceFaults>();
  const std::shared_ptr<Device> device = make_faulty_device(make_host_device({}), faults);
  const std::vector<std::byte> sent = random_bytes(pieces * piece_bytes, 3);
  const DeviceAddress memory = device->allocate(sent.size());
  CopyStream stream{*device};
  std::vector<std::unique_ptr<StreamCopy>> copies;
};

TEST_F(CopyStreamTest, copies_wait_while_enough_batches_are_under_way_and_then_go_together) {
  faults->hold(DeviceOperation::copy_to_device, 1);
  for (std::size_t index = 0; index < pieces; ++index) {
    start(index);
    EXPECT_FALSE(copies.back()->completed());
  }
  EXPECT_EQ(faults->calls(DeviceOperation::copy_to_device), 2 * queued_max) << "of two parts each";
  release();
  for (std::size_t index = 0; index < pieces; ++index) {
    EXPECT_TRUE(wait_for(*copies[index], patience));
    EXPECT_TRUE(arrived(index)) << index;
  }
}

TEST_F(CopyStreamTest, copies_wait_while_enough_bytes_are_under_way) {
  constexpr std::size_t large_bytes = 7 << 20;
  constexpr std::size_t enough = 3;  // of 20 MiB
  const std::vector<std::byte> large(large_bytes);
  const DeviceAddress there = device->allocate(large_bytes);
  faults->hold(DeviceOperation::copy_to_device, 1);
  for (std::size_t index = 0; index < enough + 1; ++index) {
    copies.push_back(stream.create_copy());
    stream.start_to_device(*copies.back(), {{there, large.data(), large_bytes}});
  }
  EXPECT_EQ(faults->calls(DeviceOperation::copy_to_device), enough);
  release();
  for (const auto& copy : copies) {
    EXPECT_TRUE(wait_for(*copy, patience));
  }
  device->release(there);
}

TEST_F(CopyStreamTest, a_copy_can_be_started_again) {
  for (int round = 0; round < 3; ++round) {
    const auto copy = stream.create_copy();
    EXPECT_TRUE(copy->completed()) << "before the first";
    for (std::size_t index = 0; index < pieces; ++index) {
      stream.start_to_device(*copy, part(index));
      EXPECT_TRUE(wait_for(*copy, patience));
      EXPECT_TRUE(arrived(index));
    }
  }
}

TEST_F(CopyStreamTest, who_waits_and_goes_is_never_copied) {
  fill_queue();
  {
    const auto gone = stream.create_copy();
    stream.start_to_device(*gone, part(queued_max));
  }
  start(queued_max + 1);
  release();
  EXPECT_TRUE(wait_for(*copies.back(), patience));
  EXPECT_TRUE(stream.drain());
  EXPECT_TRUE(arrived(queued_max + 1));
  EXPECT_FALSE(arrived(queued_max));
}

TEST_F(CopyStreamTest, one_that_is_refused_fails_alone) {
  fill_queue();
  start(queued_max);
  start(queued_max + 1);
  // Their parts are tried together, and then again, one copy after the other.
  faults->fail(DeviceOperation::copy_to_device, 2, some_device_failure(DeviceOperation::record));
  faults->fail(DeviceOperation::copy_to_device, 3, some_device_failure(DeviceOperation::record));
  release();
  int failed = 0;
  for (std::size_t index = 0; index < copies.size(); ++index) {
    try {
      EXPECT_TRUE(wait_for(*copies[index], patience));
      EXPECT_TRUE(arrived(index)) << index;
    } catch (const Error&) {
      ++failed;
      EXPECT_THROW(static_cast<void>(copies[index]->completed()), Error) << "asked again";
    }
  }
  EXPECT_EQ(failed, 1);
}

TEST_F(CopyStreamTest, many_threads_copy_what_is_theirs) {
  constexpr std::size_t threads_max = 4;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < threads_max; ++number) {
    threads.emplace_back([&, number] {
      const auto copy = stream.create_copy();
      for (int round = 0; round < 50; ++round) {
        for (std::size_t index = number; index < pieces; index += threads_max) {
          stream.start_to_device(*copy, part(index));
          EXPECT_TRUE(wait_for(*copy, patience));
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (std::size_t index = 0; index < pieces; ++index) {
    EXPECT_TRUE(arrived(index));
  }
}

}  // namespace
}  // namespace hippogriff
