// How many requests a transfer has at its drive, and what follows those that end together.
#include "testing/eventually.hpp"
#include "testing/faulty_runtime_fixture.hpp"
#include "transfer/direct_queue.hpp"
#include "transfer/outlook.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>

namespace hippogriff {
namespace {

using hippogriff::testing::eventually;

// What was begun too much is seen after this; requests that are held have ended at the drive.
constexpr std::chrono::milliseconds a_while{200};
constexpr std::uint64_t reads = 6;  // of a drive whose depth is 2
constexpr std::uint64_t spare_slots = 2;
// From so many pieces on a send has spare slots.
constexpr std::uint64_t long_bytes = 64 * DirectQueue::read_bytes;

class DriveRequestsTest : public ::testing::Test {
 protected:
  explicit DriveRequestsTest(std::shared_ptr<Device> device = linked_device())
      : on_(test_settings(), std::move(device)) {}

  void call_it_cold() {
    on_.plan->add({.point = FaultPoint::residency,
                   .kind = FaultKind::residency_wrong,
                   .times = UINT64_MAX,
                   .fraction = 0});
  }

  void hold(FaultPoint point) {
    call_it_cold();
    on_.plan->add({.point = point, .kind = FaultKind::hold, .times = UINT64_MAX});
  }

  void start(Direction direction, std::uint64_t bytes) {
    content_ = random_bytes(bytes, 78);
    memory_ = on_.state().allocate(bytes);
    if (direction == Direction::send) {
      write_whole(path_, content_);
    } else {
      std::memcpy(device_bytes(memory_), content_.data(), bytes);
      write_whole(path_, {});
    }
    know_the_drive();
    transfer_ = on_.runtime->submit({.direction = direction,
                                     .path = path_,
                                     .address = memory_,
                                     .size = bytes,
                                     .route = Route::pipelined});
    ASSERT_EQ(transfer_->decision().choice().plan.direct_io_depth, drive_depth_);
  }

  void expect_requests(FaultPoint point, std::uint64_t count) {
    EXPECT_TRUE(eventually([&] { return on_.plan->seen(point) >= count; }));
    std::this_thread::sleep_for(a_while);
    EXPECT_EQ(on_.plan->seen(point), count);
  }

  // All reads of the start end together, and the first copy does not come back from the driver.
  void release_reads_into_a_stuck_copy() {
    on_.device_faults->block(DeviceOperation::copy_to_device);
    on_.plan->release();
    ASSERT_TRUE(on_.device_faults->wait_until_held(1, no_hang));
    std::this_thread::sleep_for(a_while);
  }

  void expect_success(const std::function<void()>& and_then = [] {}) {
    on_.stop_faults();
    ASSERT_TRUE(transfer_->wait(no_hang));
    EXPECT_EQ(transfer_->status(), Status::ok) << transfer_->failure_message();
    and_then();
    if (transfer_->request().direction == Direction::send) {
      expect_all_but_missing(*transfer_, device_bytes(memory_), content_.data());
    } else {
      EXPECT_TRUE(read_whole(path_) == content_);
    }
    EXPECT_TRUE(on_.runtime->free(memory_));
    transfer_.reset();
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.file("data");
  std::uint32_t drive_depth_ = 2;
  std::vector<std::byte> content_;
  DeviceAddress memory_;
  FaultyRuntime on_;
  std::shared_ptr<Transfer> transfer_;

 private:
  // A depth that was measured is not tried out.
  void know_the_drive() {
    const auto file = on_.runtime->storage().open(path_, FileAccess::read);
    const std::string link = link_key(on_.state().device->info());
    const std::string drive = drive_key(file->facts());
    Calibration calibration = default_calibration(link, drive);
    calibration.drive.depth = drive_depth_;
    calibration.drive.measured = true;
    on_.runtime->calibration().put(link, drive, calibration);
  }
};

TEST_F(DriveRequestsTest, a_cold_send_begins_with_three_reads_for_each_of_the_depth) {
  hold(FaultPoint::queued_read);
  start(Direction::send, long_bytes);
  expect_requests(FaultPoint::queued_read, reads);
  EXPECT_EQ(transfer_->host_memory.most_bytes(), reads * DirectQueue::read_bytes);
  expect_success();
}

TEST_F(DriveRequestsTest, a_receive_alone_begins_with_eight_writes) {
  hold(FaultPoint::queued_write);
  start(Direction::recv, long_bytes);
  expect_requests(FaultPoint::queued_write, 8);
  expect_success();
}

TEST_F(DriveRequestsTest, a_receive_begins_with_two_writes_for_each_of_a_larger_depth) {
  drive_depth_ = 5;
  hold(FaultPoint::queued_write);
  start(Direction::recv, long_bytes);
  expect_requests(FaultPoint::queued_write, 10);
  expect_success();
}

TEST_F(DriveRequestsTest, a_receive_beside_another_begins_with_two_writes_for_each_of_the_depth) {
  hold(FaultPoint::queued_write);
  start(Direction::recv, long_bytes);
  expect_requests(FaultPoint::queued_write, 8);
  const std::vector<std::byte> others = random_bytes(long_bytes, 79);
  const DeviceAddress memory = on_.state().allocate(long_bytes);
  std::memcpy(device_bytes(memory), others.data(), long_bytes);
  const std::string path = folder_.file("beside");
  write_whole(path, {});
  const auto beside = on_.runtime->submit({.direction = Direction::recv,
                                           .path = path,
                                           .address = memory,
                                           .size = long_bytes,
                                           .route = Route::pipelined});
  expect_requests(FaultPoint::queued_write, 8 + 4);
  expect_success();
  ASSERT_TRUE(beside->wait(no_hang));
  EXPECT_EQ(beside->status(), Status::ok) << beside->failure_message();
  EXPECT_TRUE(read_whole(path) == others);
  EXPECT_TRUE(on_.runtime->free(memory));
}

TEST_F(DriveRequestsTest, reads_that_end_together_are_followed_by_two_before_their_copies) {
  hold(FaultPoint::queued_read);
  start(Direction::send, long_bytes);
  expect_requests(FaultPoint::queued_read, reads);
  release_reads_into_a_stuck_copy();
  EXPECT_EQ(on_.plan->seen(FaultPoint::queued_read), reads + spare_slots);
  EXPECT_EQ(transfer_->host_memory.most_bytes(), (reads + spare_slots) * DirectQueue::read_bytes);
  expect_success();
}

TEST_F(DriveRequestsTest, a_file_of_fewer_than_64_pieces_has_no_slots_beside_those_of_its_reads) {
  hold(FaultPoint::queued_read);
  start(Direction::send, long_bytes - 1);
  expect_requests(FaultPoint::queued_read, reads);
  release_reads_into_a_stuck_copy();
  EXPECT_EQ(on_.plan->seen(FaultPoint::queued_read), reads);
  EXPECT_EQ(transfer_->host_memory.most_bytes(), reads * DirectQueue::read_bytes);
  expect_success();
}

// A copy takes 5 ms, much longer than a read.
class SlowLinkTest : public DriveRequestsTest {
 protected:
  SlowLinkTest()
      : DriveRequestsTest(make_host_device({.name = "slow",
                                            .memory_bytes = std::uint64_t{256} << 20,
                                            .link_bytes_per_second = 100e6})) {}
};

TEST_F(SlowLinkTest, a_drive_that_waits_for_copies_gets_more_slots) {
  call_it_cold();
  start(Direction::send, long_bytes);
  expect_success([&] {
    EXPECT_GT(transfer_->host_memory.most_bytes(), (reads + spare_slots) * DirectQueue::read_bytes);
  });
}

}  // namespace
}  // namespace hippogriff
