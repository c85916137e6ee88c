// A driver that waits for a stream that waits for a transfer that waits for the driver.
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t watched_bytes = 24 * mebibyte + 12345;
constexpr std::chrono::milliseconds look{20};
constexpr std::chrono::milliseconds bound = DriverWatch::looks_max * look;

// What waits for the driver while it loads a kernel.
constexpr std::array blocked_calls = {DeviceOperation::copy_to_device,
                                      DeviceOperation::copy_to_host,
                                      DeviceOperation::record,
                                      DeviceOperation::create_event,
                                      DeviceOperation::create_stream};

class DriverWatchTest : public ::testing::Test {
 protected:
  DriverWatchTest() {
    write_whole(input_, content_);
    on_.state().flags.look_every(look);
  }

  void TearDown() override { on_.close(1); }

  Submission send_before(Stream& stream) {
    memory_ = on_.state().allocate(watched_bytes);
    return {.path = input_,
            .address = memory_,
            .route = Route::pipelined,
            .flags = HIPPOGRIFF_BEFORE_STREAM,
            .stream = stream.native_handle()};
  }

  void block_driver() {
    for (const DeviceOperation call : blocked_calls) {
      faults().block(call);
    }
  }

  void expect_sent(const Transfer& transfer) {
    EXPECT_FALSE(transfer.failed()) << transfer.failure_message();
    expect_all_but_missing(transfer, device_bytes(memory_), content_.data());
  }

  DeviceFaults& faults() { return *on_.device_faults; }

  const TemporaryFolder folder_;
  const std::string input_ = folder_.file("input");
  const std::vector<std::byte> content_ = random_bytes(watched_bytes, 78);
  DeviceAddress memory_;
  FaultyRuntime on_;
};

TEST_F(DriverWatchTest, a_driver_that_waits_for_the_waiting_stream_fails_the_transfer) {
  const auto stream = on_.device->create_stream();
  block_driver();
  const auto transfer = on_.runtime->submit(send_before(*stream));
  stream->launch([this] { faults().clear(); });  // only then the driver answers again
  ASSERT_TRUE(transfer->wait(no_hang)) << "the transfer hangs";
  EXPECT_EQ(transfer->status(), Status::device_error);
  EXPECT_EQ(transfer->failure().operation, "order a stream after a transfer");
  EXPECT_EQ(transfer->failure().object, on_.device->info().name);
  EXPECT_NE(transfer->failure_message().find("run the kernel once before"), std::string::npos)
      << transfer->failure_message();
  EXPECT_FALSE(transfer->missing().empty());
  expect_all_but_missing(*transfer, device_bytes(memory_), content_.data());
  EXPECT_TRUE(wait_for(*stream, no_hang));
  EXPECT_TRUE(on_.runtime->free(memory_));
  const auto next = on_.runtime->submit(send_before(*stream));
  ASSERT_TRUE(next->wait(no_hang));
  expect_sent(*next);
  EXPECT_TRUE(wait_for(*stream, no_hang));
}

TEST_F(DriverWatchTest, memory_of_a_failed_transfer_stays_in_use_until_its_channels_return) {
  const auto stream = on_.device->create_stream();
  block_driver();
  const auto transfer = on_.runtime->submit(send_before(*stream));
  ASSERT_TRUE(wait_for(*stream, no_hang)) << "the flag is not raised";
  EXPECT_EQ(transfer->status(), Status::device_error);
  EXPECT_FALSE(transfer->finished());
  EXPECT_THROW(on_.runtime->free(memory_), Error);
  faults().clear();
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_TRUE(on_.runtime->free(memory_));
}

TEST_F(DriverWatchTest, a_driver_that_is_slow_fails_nothing) {
  const auto stream = on_.device->create_stream();
  block_driver();
  const auto begin = Clock::now();
  const auto transfer = on_.runtime->submit(send_before(*stream));
  while (Clock::now() - begin < 2 * bound) {
    EXPECT_TRUE(faults().wait_until_held(1, no_hang));
    std::this_thread::sleep_for(bound / 8);
    faults().release_held();
  }
  EXPECT_FALSE(transfer->finished());
  faults().clear();
  ASSERT_TRUE(transfer->wait(no_hang));
  expect_sent(*transfer);
  EXPECT_TRUE(wait_for(*stream, no_hang));
}

TEST_F(DriverWatchTest, a_stuck_call_does_not_hold_up_the_end) {
  const auto stream = on_.device->create_stream();
  std::atomic<bool> go{false};
  stream->launch([&go] {
    while (!go) {
      std::this_thread::yield();
    }
  });
  Submission submission = send_before(*stream);
  submission.flags |= HIPPOGRIFF_AFTER_STREAM;
  const auto transfer = on_.runtime->submit(submission);
  block_driver();  // the transfer calls nothing yet, but the watch does
  ASSERT_TRUE(faults().wait_until_held(1, no_hang));
  transfer->cancel();
  go = true;
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_TRUE(on_.runtime->shutdown(no_hang));
  on_.runtime.reset();
  EXPECT_TRUE(faults().wait_until_held(1, std::chrono::milliseconds(0)));
  faults().clear();
  for (int wait = 0; wait < 6000 && faults().outstanding().streams > 1; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(faults().outstanding().streams, 1) << "ours is the one left";
  EXPECT_EQ(faults().outstanding().events, 0);
}

TEST(DriverWatchOfASlowLinkTest, a_transfer_that_takes_long_is_not_failed) {
  const TemporaryFolder folder;
  const std::string path = folder.file("input");
  const auto content = random_bytes(16 * mebibyte, 79);
  write_whole(path, content);
  const auto device =
      make_host_device({.name = "slow",
                        .memory_bytes = std::uint64_t{64} << 20,
                        .link_bytes_per_second = static_cast<double>(content.size())});
  Runtime runtime(test_settings(), make_system_storage(), {device});
  DeviceState& state = runtime.device("");
  state.flags.look_every(look);
  const DeviceAddress memory = state.allocate(content.size());
  const auto stream = device->create_stream();
  const auto transfer = runtime.submit({.path = path,
                                        .address = memory,
                                        .flags = HIPPOGRIFF_BEFORE_STREAM,
                                        .stream = stream->native_handle()});
  std::atomic<int> seen{-1};
  stream->launch([&] { seen = std::memcmp(device_bytes(memory), content.data(), content.size()); });
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_GT(transfer->progress().seconds, std::chrono::duration<double>(bound).count());
  EXPECT_TRUE(wait_for(*stream, no_hang));
  EXPECT_EQ(seen, 0);
  EXPECT_TRUE(runtime.shutdown(no_hang));
}

// Words go round between transfers while the watch looks at them.
TEST(DriverWatchOfManyTest, every_stream_waits_for_its_own_transfer) {
  const TemporaryFolder folder;
  const std::string path = folder.file("input");
  const auto content = random_bytes(mebibyte, 80);
  write_whole(path, content);
  const auto device = linked_device();
  Runtime runtime(test_settings(), make_system_storage(), {device});
  DeviceState& state = runtime.device("");
  state.flags.look_every(look);
  const auto stream = device->create_stream();
  std::atomic<int> differing{0};
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (int count = 0; count < 200; ++count) {
    const DeviceAddress memory = state.allocate(content.size());
    transfers.push_back(runtime.submit({.path = path,
                                        .address = memory,
                                        .flags = HIPPOGRIFF_BEFORE_STREAM,
                                        .stream = stream->native_handle()}));
    stream->launch([&content, &differing, memory] {
      differing += std::memcmp(device_bytes(memory), content.data(), content.size()) == 0 ? 0 : 1;
    });
  }
  EXPECT_TRUE(wait_for(*stream, no_hang));
  EXPECT_EQ(differing, 0);
  for (const auto& transfer : transfers) {
    ASSERT_TRUE(transfer->wait(no_hang));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  }
  EXPECT_TRUE(runtime.shutdown(no_hang));
}

}  // namespace
}  // namespace hippogriff
