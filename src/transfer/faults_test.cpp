// Scripted faults of storage and device under every route and both directions: what a transfer says
// of them, what it leaves undone, and that nothing is left behind.
#include "storage/descriptor.hpp"
#include "testing/effort.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t content_bytes = (thread_sanitized ? 14 : 24) * mebibyte + 12345;

// How much of a file the storage says is in the page cache.
enum class Claim : std::uint8_t { cold, warm, half };

class FaultsTest : public ::testing::Test {
 protected:
  FaultsTest() { write_whole(input_, content_); }

  void claim(Claim claim) {
    const double fraction = claim == Claim::cold ? 0 : claim == Claim::warm ? 1 : 0.5;
    on_.plan->add({.point = FaultPoint::residency,
                   .kind = FaultKind::residency_wrong,
                   .times = UINT64_MAX,
                   .fraction = fraction});
  }

  // Memory on the device that holds none of the content.
  DeviceAddress blank_memory() {
    const DeviceAddress memory = on_.state().allocate(content_bytes);
    std::memset(device_bytes(memory), 0x5A, content_bytes);
    return memory;
  }

  std::shared_ptr<Transfer> send(Route route = Route::automatic) {
    memory_ = blank_memory();
    return finished({.path = input_, .address = memory_, .route = route});
  }

  // Into `output_`, in place when it has been made large enough, else as a whole.
  std::shared_ptr<Transfer> recv(Route route = Route::automatic, std::uint32_t flags = 0) {
    memory_ = on_.state().allocate(content_bytes);
    std::memcpy(device_bytes(memory_), content_.data(), content_bytes);
    return finished({.direction = Direction::recv,
                     .path = output_,
                     .address = memory_,
                     .size = content_bytes,
                     .route = route,
                     .flags = flags});
  }

  // A file larger than the content is written in place.
  void make_output_larger() { write_whole(output_, random_bytes(content_bytes + 4096, 5)); }

  std::shared_ptr<Transfer> finished(const Submission& submission) const {
    auto transfer = on_.runtime->submit(submission);
    EXPECT_TRUE(transfer->wait(no_hang)) << "the transfer hangs";
    return transfer;
  }

  void expect_sent(const Transfer& transfer) {
    expect_all_but_missing(transfer, device_bytes(memory_), content_.data());
  }

  void expect_received_in_place(const Transfer& transfer) {
    const auto output = read_whole(output_);
    ASSERT_GE(output.size(), content_bytes);
    expect_all_but_missing(transfer, output.data(), content_.data());
  }

  static void expect_failure(const Transfer& transfer, Status status, int errno_value = 0) {
    EXPECT_EQ(transfer.status(), status) << transfer.failure_message();
    EXPECT_EQ(transfer.failure().errno_value, errno_value) << transfer.failure_message();
    EXPECT_FALSE(transfer.failure().operation.empty());
    EXPECT_FALSE(transfer.missing().empty());
  }

  // The runtime is as good as before: memory can be freed, the same transfers succeed by any route.
  void expect_recovered() {
    on_.stop_faults();
    EXPECT_TRUE(on_.runtime->free(memory_));
    EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
    EXPECT_TRUE(on_.device_faults->wait_until_unregistered(no_hang));
    EXPECT_EQ(on_.device_faults->outstanding().allocations, 0);
    for (const Route route : {Route::pipelined, Route::mapped, Route::parked}) {
      const auto sent = send(route);
      EXPECT_FALSE(sent->failed()) << route_name(route) << ": " << sent->failure_message();
      expect_sent(*sent);
      EXPECT_TRUE(on_.runtime->free(memory_));
    }
    const auto received = recv();
    EXPECT_FALSE(received->failed()) << received->failure_message();
    EXPECT_TRUE(on_.runtime->free(memory_));
  }

  // Sends by `route` under the faults, expects the failure, and that all is well afterwards.
  void expect_send_fails(Route route, Status status, int errno_value = 0) {
    {
      const auto transfer = send(route);
      expect_failure(*transfer, status, errno_value);
      expect_sent(*transfer);
    }
    expect_recovered();
  }

  void expect_send_succeeds(Route route) {
    {
      const auto transfer = send(route);
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      expect_sent(*transfer);
    }
    expect_recovered();
  }

  void expect_recv_fails_in_place(Route route, Status status, int errno_value = 0) {
    make_output_larger();
    {
      const auto transfer = recv(route);
      expect_failure(*transfer, status, errno_value);
      expect_received_in_place(*transfer);
    }
    expect_recovered();
  }

  void expect_recv_succeeds_in_place(Route route) {
    make_output_larger();
    {
      const auto transfer = recv(route);
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      expect_received_in_place(*transfer);
    }
    expect_recovered();
  }

  const TemporaryFolder folder_;
  const std::string input_ = folder_.file("input");
  const std::string output_ = folder_.file("output");
  const std::vector<std::byte> content_ = random_bytes(content_bytes, 77);
  DeviceAddress memory_;
  FaultyRuntime on_;
};

// --- storage, sends ---

TEST_F(FaultsTest, error_of_a_buffered_read_is_named_with_path_offset_and_errno) {
  claim(Claim::warm);
  on_.plan->add({.point = FaultPoint::read, .after = 3, .errno_value = EIO});
  {
    const auto transfer = send(Route::pipelined);
    expect_failure(*transfer, Status::io_error, EIO);
    EXPECT_EQ(transfer->failure().operation, "read");
    EXPECT_EQ(transfer->failure().object, input_);
    ASSERT_NE(transfer->failure().offset, no_offset);
    const std::uint64_t at = transfer->failure().offset;
    const auto missing = transfer->missing();
    EXPECT_TRUE(std::any_of(missing.begin(), missing.end(), [at](const Range& range) {
      return range.offset <= at && at < range.end();
    }));
    expect_sent(*transfer);
  }
  expect_recovered();
}

TEST_F(FaultsTest, error_of_a_queued_read_fails_a_cold_send) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::queued_read, .after = 2, .errno_value = EIO});
  expect_send_fails(Route::pipelined, Status::io_error, EIO);
}

TEST_F(FaultsTest, queue_that_asks_to_try_again_is_obeyed) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::queued_read, .after = 1, .times = 3, .errno_value = EAGAIN});
  on_.plan->add({.point = FaultPoint::queued_read, .times = 1, .errno_value = ECANCELED});
  expect_send_succeeds(Route::pipelined);
  EXPECT_GE(on_.plan->struck(), 1U);
}

TEST_F(FaultsTest, refusal_of_direct_io_falls_back_to_buffered_reads) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::queued_read, .times = UINT64_MAX, .errno_value = EINVAL});
  expect_send_succeeds(Route::pipelined);
}

TEST_F(FaultsTest, short_reads_of_all_kinds_are_continued) {
  claim(Claim::half);
  for (const FaultPoint point :
       {FaultPoint::read, FaultPoint::read_cached, FaultPoint::queued_read}) {
    for (const std::uint64_t bytes : {8192U, 5000U, 1U, 65536U}) {
      on_.plan->add({.point = point, .kind = FaultKind::shorten, .times = 2, .bytes = bytes});
    }
  }
  {
    for (const Route route : {Route::automatic, Route::pipelined, Route::mapped, Route::parked}) {
      const auto transfer = send(route);
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      expect_sent(*transfer);
      EXPECT_TRUE(on_.runtime->free(memory_));
    }
  }
  memory_ = blank_memory();
  expect_recovered();
}

TEST_F(FaultsTest, queue_that_refuses_requests_fails_the_transfer) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::submit, .after = 3, .errno_value = ENOMEM});
  expect_send_fails(Route::pipelined, Status::io_error, ENOMEM);
}

TEST_F(FaultsTest, queue_that_breaks_down_fails_the_transfer) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::reap, .after = 2, .errno_value = EBADF});
  expect_send_fails(Route::pipelined, Status::io_error, EBADF);
}

TEST_F(FaultsTest, queue_that_cannot_be_made_fails_the_transfer) {
  claim(Claim::cold);
  on_.plan->add({.point = FaultPoint::create_queue, .times = UINT64_MAX, .errno_value = ENOSYS});
  expect_send_fails(Route::pipelined, Status::io_error, ENOSYS);
}

TEST_F(FaultsTest, residency_that_is_unknown_or_wrong_changes_no_byte) {
  for (const double fraction : {-1.0, 0.0, 0.3, 1.0}) {
    SCOPED_TRACE(fraction);
    on_.plan->add({.point = FaultPoint::residency,
                   .kind = fraction < 0 ? FaultKind::residency_unknown : FaultKind::residency_wrong,
                   .times = 40,
                   .fraction = fraction});
    drop_cache(input_, 3 * mebibyte, 9 * mebibyte);
    for (const Route route : {Route::automatic, Route::pipelined, Route::mapped, Route::parked}) {
      const auto transfer = send(route);
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      expect_sent(*transfer);
      EXPECT_TRUE(on_.runtime->free(memory_));
    }
  }
}

TEST_F(FaultsTest, file_that_cannot_be_mapped_is_read) {
  claim(Claim::warm);
  on_.plan->add({.point = FaultPoint::map, .after = 1, .times = UINT64_MAX, .errno_value = ENODEV});
  expect_send_succeeds(Route::mapped);
}

TEST_F(FaultsTest, pages_that_cannot_be_registered_are_read) {
  claim(Claim::warm);
  on_.device_faults->fail(
      DeviceOperation::register_host, 2, some_device_failure(DeviceOperation::register_host), 1000);
  expect_send_succeeds(Route::mapped);
}

TEST_F(FaultsTest, file_truncated_meanwhile_is_short_at_the_exact_offset) {
  for (const Claim how : {Claim::warm, Claim::cold}) {
    for (const Route route : {Route::pipelined, Route::mapped, Route::parked}) {
      SCOPED_TRACE(std::string(route_name(route)) + (how == Claim::warm ? ", warm" : ", cold"));
      constexpr std::uint64_t cut_bytes = 11 * mebibyte + 77;
      write_whole(input_, content_);
      claim(how);
      for (const FaultPoint point : {FaultPoint::read, FaultPoint::queued_read, FaultPoint::map}) {
        on_.plan->add({.point = point, .kind = FaultKind::truncate_file, .bytes = cut_bytes});
      }
      const auto transfer = send(route);
      expect_sent(*transfer);
      // Pages that vanish after they were registered are the device's to notice.
      if (transfer->status() != Status::device_error || route != Route::mapped) {
        EXPECT_EQ(transfer->status(), Status::short_file) << transfer->failure_message();
        EXPECT_EQ(transfer->failure().offset, cut_bytes) << transfer->failure_message();
      }
      EXPECT_TRUE(on_.runtime->free(memory_));
      on_.plan->clear();
    }
  }
  write_whole(input_, content_);
  memory_ = blank_memory();
  expect_recovered();
}

// --- storage, receives ---

TEST_F(FaultsTest, error_of_a_write_is_named_and_nothing_else_is_claimed) {
  on_.plan->add({.point = FaultPoint::write, .after = 1, .times = UINT64_MAX, .errno_value = EIO});
  on_.plan->add(
      {.point = FaultPoint::queued_write, .after = 1, .times = UINT64_MAX, .errno_value = EIO});
  expect_recv_fails_in_place(Route::pipelined, Status::io_error, EIO);
}

TEST_F(FaultsTest, error_of_a_write_fails_a_parked_receive) {
  on_.plan->add({.point = FaultPoint::write, .after = 1, .times = UINT64_MAX, .errno_value = EIO});
  on_.plan->add(
      {.point = FaultPoint::queued_write, .after = 1, .times = UINT64_MAX, .errno_value = EIO});
  expect_recv_fails_in_place(Route::parked, Status::io_error, EIO);
}

TEST_F(FaultsTest, file_that_grows_has_its_size_only_when_all_is_there) {
  const TemporaryFolder memory_folder("/dev/shm");
  for (const Route route : {Route::automatic, Route::pipelined, Route::mapped, Route::parked}) {
    SCOPED_TRACE(route_name(route));
    const std::string output = route == Route::mapped ? memory_folder.file("out") : output_;
    // In place: the file is not replaced because of the offset.
    constexpr std::uint64_t offset = 8192 + 13;
    const auto recv_behind = [&] {
      write_whole(output, random_bytes(offset, 6));
      memory_ = on_.state().allocate(content_bytes);
      std::memcpy(device_bytes(memory_), content_.data(), content_bytes);
      return finished({.direction = Direction::recv,
                       .path = output,
                       .address = memory_,
                       .offset = offset,
                       .size = content_bytes,
                       .route = route});
    };
    on_.device_faults->fail(
        DeviceOperation::copy_to_host, 2, {.status = Status::device_error, .operation = "copy"});
    {
      const auto failed = recv_behind();
      expect_failure(*failed, Status::device_error);
      EXPECT_LT(std::filesystem::file_size(output), offset + content_bytes);
    }
    on_.stop_faults();
    EXPECT_TRUE(on_.runtime->free(memory_));
    const auto done = recv_behind();
    EXPECT_FALSE(done->failed()) << done->failure_message();
    const auto written = read_whole(output);
    ASSERT_EQ(written.size(), offset + content_bytes);
    expect_all_but_missing(*done, written.data() + offset, content_.data());
    EXPECT_TRUE(on_.runtime->free(memory_));
  }
}

TEST_F(FaultsTest,
       file_that_grows_by_less_than_a_page_or_from_a_full_budget_is_short_until_the_end) {
  Settings settings = test_settings();
  settings.parking_bytes = 8 * mebibyte;
  const FaultyRuntime small(settings);

  struct Case {
    Route route;
    std::uint64_t old_bytes;
  };

  for (const auto& [route, old_bytes] : {Case{Route::parked, 0},
                                         Case{Route::parked, content_bytes - 100},
                                         Case{Route::pipelined, content_bytes - 1}}) {
    SCOPED_TRACE(std::string(route_name(route)) + " " + std::to_string(old_bytes));
    write_whole(output_, random_bytes(old_bytes, 6));
    const DeviceAddress memory = small.state().allocate(content_bytes);
    std::memcpy(device_bytes(memory), content_.data(), content_bytes);
    const Descriptor file(open(output_.c_str(), O_RDWR | O_CLOEXEC));
    for (const bool fails : {true, false}) {
      if (fails) {
        small.plan->add({.point = FaultPoint::write, .after = 4});
        small.plan->add({.point = FaultPoint::queued_write, .after = 4});
      }
      const auto transfer = small.runtime->submit({.direction = Direction::recv,
                                                   .fd = file.get(),
                                                   .address = memory,
                                                   .size = content_bytes,
                                                   .route = route});
      ASSERT_TRUE(transfer->wait(no_hang));
      small.plan->clear();
      EXPECT_EQ(transfer->failed(), fails) << transfer->failure_message();
      EXPECT_EQ(std::filesystem::file_size(output_) < content_bytes, fails);
    }
    EXPECT_TRUE(same_bytes(read_whole(output_), content_));
    EXPECT_TRUE(small.runtime->free(memory));
  }
}

TEST_F(FaultsTest, full_drive_says_so_and_what_was_written_is_there) {
  on_.plan->limit_size(9 * mebibyte + 1000);
  expect_recv_fails_in_place(Route::pipelined, Status::io_error, ENOSPC);
}

TEST_F(FaultsTest, drive_that_cannot_hold_the_file_is_found_out_before_any_byte_moves) {
  on_.plan->add({.point = FaultPoint::allocate, .errno_value = ENOSPC});
  try {
    recv();
    ADD_FAILURE() << "a full drive was not noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::io_error);
    EXPECT_EQ(error.failure().errno_value, ENOSPC);
  }
  EXPECT_NE(access(output_.c_str(), F_OK), 0);
  expect_recovered();
}

TEST_F(FaultsTest, short_writes_are_continued_and_refused_direct_writes_go_buffered) {
  for (const FaultPoint point : {FaultPoint::write, FaultPoint::queued_write}) {
    for (const std::uint64_t bytes : {8192U, 5000U, 1U}) {
      on_.plan->add({.point = point, .kind = FaultKind::shorten, .times = 2, .bytes = bytes});
    }
  }
  on_.plan->add({.point = FaultPoint::queued_write, .times = 2, .errno_value = EINVAL});
  on_.plan->add({.point = FaultPoint::queued_write, .times = 2, .errno_value = EAGAIN});
  on_.plan->add({.point = FaultPoint::queued_write, .times = 2, .errno_value = ECANCELED});
  expect_recv_succeeds_in_place(Route::pipelined);
}

TEST_F(FaultsTest, failing_end_of_a_whole_file_leaves_the_old_one) {
  const auto old = random_bytes(5 * mebibyte, 6);
  for (const FaultPoint point : {FaultPoint::sync, FaultPoint::rename}) {
    write_whole(output_, old);
    on_.plan->add({.point = point, .errno_value = EIO});
    {
      const auto transfer = recv();
      EXPECT_EQ(transfer->status(), Status::io_error);
      EXPECT_EQ(transfer->failure().errno_value, EIO);
    }
    EXPECT_TRUE(same_bytes(read_whole(output_), old));
    EXPECT_EQ(entries_of(folder_.path().c_str()), 2U) << "a temporary file is left";
    EXPECT_TRUE(on_.runtime->free(memory_));
  }
  memory_ = blank_memory();
  expect_recovered();
}

TEST_F(FaultsTest, failing_sync_fails_a_durable_receive) {
  make_output_larger();
  on_.plan->add({.point = FaultPoint::sync, .errno_value = EIO});
  {
    const auto transfer = recv(Route::automatic, HIPPOGRIFF_DURABLE);
    EXPECT_EQ(transfer->status(), Status::io_error);
  }
  expect_recovered();
}

TEST_F(FaultsTest, failing_receive_of_a_whole_file_leaves_the_old_one) {
  const auto old = random_bytes(5 * mebibyte, 6);
  write_whole(output_, old);
  on_.device_faults->fail(
      DeviceOperation::copy_to_host, 3, some_device_failure(DeviceOperation::copy_to_host), 1000);
  {
    const auto transfer = recv();
    EXPECT_EQ(transfer->status(), Status::device_error);
  }
  EXPECT_TRUE(same_bytes(read_whole(output_), old));
  EXPECT_EQ(entries_of(folder_.path().c_str()), 2U) << "a temporary file is left";
  expect_recovered();
}

}  // namespace
}  // namespace hippogriff
