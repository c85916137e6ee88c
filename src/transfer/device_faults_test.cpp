// Scripted faults of the device under every route and both directions.
#include "testing/effort.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t faulted_bytes = (thread_sanitized ? 6 : 12) * mebibyte + 12345;

constexpr std::array send_routes = {Route::pipelined, Route::mapped, Route::parked};
constexpr std::array recv_routes = {Route::pipelined, Route::parked};

class DeviceFaultsTest : public ::testing::Test {
 protected:
  DeviceFaultsTest() { write_whole(input_, content_); }

  Submission send_of(Route route) {
    memory_ = on_.state().allocate(faulted_bytes);
    std::memset(device_bytes(memory_), 0x5A, faulted_bytes);
    return {.path = input_, .address = memory_, .route = route};
  }

  Submission recv_of(Route route) {
    write_whole(output_, random_bytes(faulted_bytes + 4096, 5));
    memory_ = on_.state().allocate(faulted_bytes);
    std::memcpy(device_bytes(memory_), content_.data(), faulted_bytes);
    return {.direction = Direction::recv,
            .path = output_,
            .address = memory_,
            .size = faulted_bytes,
            .route = route};
  }

  // Submits behind work on a stream that has not ended yet, so that sends are parked first.
  std::shared_ptr<Transfer> submit_gated(Submission submission) {
    const auto stream = on_.device->create_stream();
    stream->launch([] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
    submission.flags |= HIPPOGRIFF_AFTER_STREAM;
    submission.stream = stream->native_handle();
    auto transfer = on_.runtime->submit(submission);
    EXPECT_TRUE(transfer->wait(no_hang)) << "the transfer hangs";
    return transfer;
  }

  std::shared_ptr<Transfer> submit(const Submission& submission) {
    if (submission.route == Route::parked && submission.direction == Direction::send) {
      return submit_gated(submission);
    }
    auto transfer = on_.runtime->submit(submission);
    EXPECT_TRUE(transfer->wait(no_hang)) << "the transfer hangs";
    return transfer;
  }

  void check_bytes(const Transfer& transfer) {
    if (transfer.request().direction == Direction::send) {
      expect_all_but_missing(transfer, device_bytes(memory_), content_.data());
    } else {
      expect_all_but_missing(transfer, read_whole(output_).data(), content_.data());
    }
  }

  void run_and_check(const Submission& submission, Status expected) {
    SCOPED_TRACE(std::string(route_name(submission.route)) +
                 (submission.direction == Direction::send ? " send" : " recv"));
    try {
      const auto transfer = submit(submission);
      EXPECT_EQ(transfer->status(), expected) << transfer->failure_message();
      check_bytes(*transfer);
    } catch (const Error& error) {
      // A gate that cannot be asked about refuses the transfer.
      EXPECT_EQ(submission.route, Route::parked) << error.what();
      EXPECT_EQ(error.failure().status, expected) << error.what();
    }
    expect_recovered();
  }

  void expect_recovered() {
    on_.stop_faults();
    EXPECT_TRUE(on_.runtime->free(memory_));
    EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
    EXPECT_TRUE(on_.device_faults->wait_until_unregistered(no_hang));
    EXPECT_EQ(on_.device_faults->outstanding().allocations, 0);
    // Often enough that every thread of the engine has had its turn.
    for (int round = 0; round < 4; ++round) {
      const auto sent = submit(send_of(send_routes[static_cast<std::size_t>(round) % 3]));
      EXPECT_FALSE(sent->failed()) << "afterwards: " << sent->failure_message();
      check_bytes(*sent);
      EXPECT_TRUE(on_.runtime->free(memory_));
    }
    const auto received = submit(recv_of(Route::pipelined));
    EXPECT_FALSE(received->failed()) << "afterwards: " << received->failure_message();
    check_bytes(*received);
    EXPECT_TRUE(on_.runtime->free(memory_));
  }

  // One fault, met by every route.
  void expect_all_routes(const std::function<void()>& script,
                         Status expected,
                         bool sends = true,
                         bool receives = true) {
    for (const Route route : send_routes) {
      if (sends) {
        const Submission submission = send_of(route);
        script();
        run_and_check(submission, expected);
      }
    }
    for (const Route route : recv_routes) {
      if (receives) {
        const Submission submission = recv_of(route);
        script();
        run_and_check(submission, expected);
      }
    }
  }

  DeviceFaults& faults() { return *on_.device_faults; }

  const TemporaryFolder folder_;

  // More than one call: what fails in a batch is tried alone.
  void fail_a_copy(DeviceOperation copy) { faults().fail(copy, 2, some_device_failure(copy), 8); }

  const std::string input_ = folder_.file("input");
  const std::string output_ = folder_.file("output");
  const std::vector<std::byte> content_ = random_bytes(faulted_bytes, 77);
  DeviceAddress memory_;
  FaultyRuntime on_;
};

TEST_F(DeviceFaultsTest, copy_that_is_refused_at_once_fails_the_transfer) {
  expect_all_routes(
      [this] {
        for (const auto copy : {DeviceOperation::copy_to_device, DeviceOperation::copy_to_host}) {
          fail_a_copy(copy);
        }
      },
      Status::device_error);
}

TEST_F(DeviceFaultsTest, copy_that_fails_later_fails_the_transfer_and_no_other) {
  expect_all_routes(
      [this] {
        for (const auto copy : {DeviceOperation::copy_to_device, DeviceOperation::copy_to_host}) {
          faults().fail_later(copy, 2, some_device_failure(copy));
        }
      },
      Status::device_error);
}

TEST_F(DeviceFaultsTest, event_that_cannot_be_recorded_lends_no_memory_that_a_copy_uses) {
  expect_all_routes(
      [this] {
        for (const auto copy : {DeviceOperation::copy_to_device, DeviceOperation::copy_to_host}) {
          faults().delay(copy, 1, std::chrono::milliseconds(20), 100);
        }
        // The first record is the gate's where the send is parked; of batches there may be few.
        faults().fail(DeviceOperation::record, 2, some_device_failure(DeviceOperation::record));
      },
      Status::device_error);
}

TEST_F(DeviceFaultsTest, failing_question_about_a_copy_fails_the_transfer) {
  expect_all_routes(
      [this] {
        // All: how often a slow machine asks, and whether for a batch or for a copy, is chance.
        faults().fail(
            DeviceOperation::completed, 1, some_device_failure(DeviceOperation::completed), 1000);
      },
      Status::device_error);
}

TEST_F(DeviceFaultsTest, slow_copies_are_waited_for) {
  expect_all_routes(
      [this] {
        for (const auto copy : {DeviceOperation::copy_to_device, DeviceOperation::copy_to_host}) {
          faults().delay(copy, 1, std::chrono::milliseconds(10), 8);
        }
      },
      Status::ok);
}

TEST_F(DeviceFaultsTest, events_that_cannot_be_made_fail_the_transfer) {
  expect_all_routes(
      [this] {
        faults().fail(DeviceOperation::create_event,
                      2,
                      some_device_failure(DeviceOperation::create_event),
                      100);
      },
      Status::device_error,
      true,
      false);
}

TEST_F(DeviceFaultsTest, first_pinned_memory_that_cannot_be_had_fails_the_transfer) {
  const Failure none{.status = Status::out_of_host_memory,
                     .operation = "allocate pinned memory",
                     .object = "faulty",
                     .errno_value = ENOMEM,
                     .detail = "injected"};
  faults().fail(DeviceOperation::allocate_pinned, 1, none, 1000);
  run_and_check(send_of(Route::pipelined), Status::out_of_host_memory);
}

// What a driver answers under a small limit of locked memory.
Failure pinning_refused() {
  constexpr int operating_system_said_no = 304;
  return {.status = Status::device_error,
          .operation = "pin host memory",
          .object = "faulty",
          .device_status = operating_system_said_no,
          .detail = "injected"};
}

TEST_F(DeviceFaultsTest, a_driver_that_pins_no_memory_is_done_without_and_told) {
  constexpr std::uint64_t always = 1'000'000;
  for (const Route route : send_routes) {
    faults().fail(DeviceOperation::allocate_pinned, 1, pinning_refused(), always);
    run_and_check(send_of(route), Status::ok);
  }
  for (const Route route : recv_routes) {
    faults().fail(DeviceOperation::allocate_pinned, 1, pinning_refused(), always);
    run_and_check(recv_of(route), Status::ok);
  }
  const auto notices = on_.runtime->notices();
  ASSERT_EQ(notices.size(), 1U);
  EXPECT_NE(notices[0].find("faulty"), std::string::npos) << notices[0];
  EXPECT_NE(notices[0].find("ulimit -l unlimited"), std::string::npos) << notices[0];
}

TEST_F(DeviceFaultsTest, a_driver_that_pins_some_memory_is_no_reason_for_a_notice) {
  faults().fail(DeviceOperation::allocate_pinned, 2, pinning_refused(), 1000);
  run_and_check(send_of(Route::pipelined), Status::ok);
  EXPECT_TRUE(on_.runtime->notices().empty());
}

TEST_F(DeviceFaultsTest, parking_that_cannot_be_had_fails_the_transfer) {
  faults().fail(DeviceOperation::allocate_pinned,
                1,
                {.status = Status::out_of_host_memory, .operation = "allocate pinned memory"},
                1000);
  run_and_check(send_of(Route::parked), Status::out_of_host_memory);
}

TEST_F(DeviceFaultsTest, later_pinned_memory_that_cannot_be_had_is_done_without) {
  faults().fail(DeviceOperation::allocate_pinned,
                2,
                {.status = Status::out_of_host_memory, .operation = "allocate pinned memory"},
                1000);
  run_and_check(send_of(Route::pipelined), Status::ok);
}

TEST_F(DeviceFaultsTest, threads_without_a_stream_fail_their_transfers_and_recover) {
  constexpr std::uint64_t always = 1'000'000;
  faults().fail(DeviceOperation::create_stream,
                1,
                some_device_failure(DeviceOperation::create_stream),
                always);
  // More often than there may be threads.
  for (int round = 0; round < 12; ++round) {
    const auto transfer = submit(send_of(Route::pipelined));
    EXPECT_EQ(transfer->status(), Status::device_error) << transfer->failure_message();
    check_bytes(*transfer);
    EXPECT_TRUE(on_.runtime->free(memory_));
  }
  memory_ = on_.state().allocate(1);
  expect_recovered();
}

TEST_F(DeviceFaultsTest, cancelled_transfer_ends_when_the_held_copies_do) {
  for (const Route route : send_routes) {
    SCOPED_TRACE(route_name(route));
    Submission submission = send_of(route);
    faults().hold(DeviceOperation::copy_to_device, 2, 1000);
    {
      const auto transfer = on_.runtime->submit(submission);
      ASSERT_TRUE(faults().wait_until_held(1, no_hang));
      transfer->cancel();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_FALSE(transfer->finished()) << "a copy may still write";
      EXPECT_THROW(on_.runtime->free(memory_), Error);
      for (int wait = 0; wait < 6000 && !transfer->finished(); ++wait) {
        faults().release_held();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      ASSERT_TRUE(transfer->finished());
      EXPECT_EQ(transfer->status(), Status::cancelled);
      check_bytes(*transfer);
    }
    expect_recovered();
  }
}

TEST_F(DeviceFaultsTest, allocation_that_fails_while_data_is_parked_ends_the_wait) {
  DeviceState& state = on_.state();
  const DeviceAddress holder = state.allocate(250 * mebibyte);
  {
    const auto transfer = on_.runtime->submit({.path = input_, .memory_timeout_ms = 60'000});
    for (int wait = 0; wait < 4000 && transfer->parked_bytes() < faulted_bytes; ++wait) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(transfer->parked_bytes(), faulted_bytes);
    faults().fail(DeviceOperation::allocate, 1, some_device_failure(DeviceOperation::allocate));
    ASSERT_TRUE(transfer->wait(no_hang));
    EXPECT_EQ(transfer->status(), Status::device_error);
    EXPECT_EQ(transfer->missing(), (std::vector<Range>{{0, faulted_bytes}}));
    EXPECT_TRUE(transfer->address().is_null());
  }
  EXPECT_TRUE(on_.runtime->free(holder));
  memory_ = state.allocate(1);
  expect_recovered();
}

TEST_F(DeviceFaultsTest, failed_send_gives_back_the_memory_it_allocated) {
  fail_a_copy(DeviceOperation::copy_to_device);
  {
    const auto transfer = submit({.path = input_});
    EXPECT_EQ(transfer->status(), Status::device_error);
    EXPECT_TRUE(transfer->address().is_null());
  }
  EXPECT_EQ(faults().outstanding().allocations, 0);
  memory_ = on_.state().allocate(1);
  expect_recovered();
}

TEST_F(DeviceFaultsTest, receive_that_is_parked_waits_for_the_stream_before_it) {
  Submission submission = recv_of(Route::parked);
  const auto stream = on_.device->create_stream();
  std::memset(device_bytes(memory_), 0, faulted_bytes);
  stream->launch([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::memcpy(device_bytes(memory_), content_.data(), faulted_bytes);
  });
  submission.flags = HIPPOGRIFF_AFTER_STREAM;
  submission.stream = stream->native_handle();
  {
    const auto transfer = submit(submission);
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    check_bytes(*transfer);
  }
  expect_recovered();
}

TEST_F(DeviceFaultsTest, failing_work_on_the_callers_stream_fails_what_waits_for_it) {
  Submission submission = send_of(Route::automatic);
  const auto stream = on_.device->create_stream();
  stream->launch([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    throw Error({.status = Status::device_error, .operation = "run a kernel"});
  });
  submission.flags = HIPPOGRIFF_AFTER_STREAM;
  submission.stream = stream->native_handle();
  {
    const auto transfer = submit(submission);
    EXPECT_EQ(transfer->status(), Status::device_error);
    EXPECT_EQ(transfer->missing(), (std::vector<Range>{{0, faulted_bytes}}));
  }
  expect_recovered();
}

TEST_F(DeviceFaultsTest, stream_that_is_to_wait_goes_on_after_a_failure) {
  Submission submission = send_of(Route::pipelined);
  auto stream = on_.device->create_stream();
  submission.flags = HIPPOGRIFF_BEFORE_STREAM;
  submission.stream = stream->native_handle();
  fail_a_copy(DeviceOperation::copy_to_device);
  EXPECT_EQ(submit(submission)->status(), Status::device_error);
  EXPECT_TRUE(wait_for(*stream, no_hang));
  faults().fail(DeviceOperation::wait_flag, 1, some_device_failure(DeviceOperation::wait_flag));
  EXPECT_THROW(submit(submission), Error);
  EXPECT_TRUE(wait_for(*stream, no_hang));
  stream.reset();
  expect_recovered();
  on_.close(1);
}

TEST_F(DeviceFaultsTest, small_transfers_survive_every_refusal) {
  const DeviceAddress memory = on_.state().allocate(mebibyte);
  const int fd = open(input_.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const Submission small{.fd = fd,
                         .address = memory,
                         .offset = 4097,
                         .size = 70'001,
                         .flags = HIPPOGRIFF_AFTER_STREAM};
  for (const auto operation : {DeviceOperation::copy_to_device,
                               DeviceOperation::record,
                               DeviceOperation::completed,
                               DeviceOperation::borrow_stream,
                               DeviceOperation::idle}) {
    // More often than there are channels: none of them may be lost.
    for (int round = 0; round < 40; ++round) {
      faults().fail(operation, 1, some_device_failure(operation));
      try {
        static_cast<void>(on_.runtime->transfer_small(small));
      } catch (const Error& error) {
        EXPECT_EQ(error.failure().status, Status::device_error);
      }
      on_.stop_faults();
    }
    const auto begin = Clock::now();
    EXPECT_TRUE(on_.runtime->transfer_small(small)) << device_operation_name(operation);
    EXPECT_LT(Clock::now() - begin, std::chrono::milliseconds(900))
        << "a channel had to be waited for after " << device_operation_name(operation);
    EXPECT_EQ(std::memcmp(device_bytes(memory), content_.data() + 4097, 70'001), 0);
  }
  EXPECT_EQ(close(fd), 0);
  EXPECT_TRUE(on_.runtime->free(memory));
}

}  // namespace
}  // namespace hippogriff
