// Receives that are parked: the file is written while the device is drained, with as many writes as
// an ordinary receive has, and whatever goes wrong, what is not there is named.
#include "testing/effort.hpp"
#include "testing/eventually.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

using testing::eventually;

constexpr std::uint64_t parked_content_bytes = 24 * mebibyte + 4321;

Settings settings_with(std::uint64_t parking_bytes, std::uint32_t threads_max = 8) {
  Settings settings = test_settings();
  settings.parking_bytes = parking_bytes;
  settings.threads_max = threads_max;
  return settings;
}

class ParkedReceiveTest : public ::testing::Test {
 protected:
  explicit ParkedReceiveTest(const Settings& settings = settings_with(64 * mebibyte))
      : on_(settings), memory_(on_.state().allocate(parked_content_bytes)) {
    std::memcpy(device_bytes(memory_), content_.data(), parked_content_bytes);
  }

  void TearDown() override {
    on_.stop_faults();
    on_.device_faults->release_held();
    EXPECT_TRUE(on_.runtime->free(memory_));
  }

  std::shared_ptr<Transfer> submit(const std::string& path,
                                   std::uint64_t offset = 0,
                                   Route route = Route::parked) const {
    return on_.runtime->submit({.direction = Direction::recv,
                                .path = path,
                                .address = memory_,
                                .offset = offset,
                                .size = parked_content_bytes,
                                .route = route});
  }

  // Another transfer, which wants a thread of the same device.
  std::shared_ptr<Transfer> submit_send() const {
    const std::string path = folder_.file("input");
    write_whole(path, random_bytes(mebibyte, 32));
    return on_.runtime->submit({.path = path, .route = Route::pipelined});
  }

  void expect_written(const std::string& path, std::uint64_t offset = 0) const {
    const auto output = read_whole(path);
    ASSERT_EQ(output.size(), offset + parked_content_bytes);
    EXPECT_EQ(std::memcmp(output.data() + offset, content_.data(), parked_content_bytes), 0);
  }

  const TemporaryFolder folder_;
  const TemporaryFolder memory_folder_{"/dev/shm"};
  const std::string output_ = folder_.file("output");
  const std::vector<std::byte> content_ = random_bytes(parked_content_bytes, 31);
  FaultyRuntime on_;
  const DeviceAddress memory_;
};

class SmallParkingTest : public ParkedReceiveTest {
 protected:
  static constexpr std::uint64_t parking_bytes = 8 * mebibyte;

  explicit SmallParkingTest(std::uint32_t threads_max = 8)
      : ParkedReceiveTest(settings_with(parking_bytes, threads_max)) {}
};

class OneThreadTest : public ParkedReceiveTest {
 protected:
  OneThreadTest() : ParkedReceiveTest(settings_with(64 * mebibyte, 1)) {}
};

class TwoThreadsTest : public SmallParkingTest {
 protected:
  TwoThreadsTest() : SmallParkingTest(2) {}
};

// How many writes a receive keeps under way when none of them ends.
std::uint64_t writes_at_once(Route route) {
  const TemporaryFolder folder;
  FaultyRuntime on(settings_with(64 * mebibyte));
  on.plan->add({.point = FaultPoint::queued_write,
                .kind = FaultKind::hold,
                .times = std::numeric_limits<std::uint64_t>::max()});
  const DeviceAddress memory = on.state().allocate(parked_content_bytes);
  std::uint64_t most = 0;
  {
    const auto transfer = on.runtime->submit({.direction = Direction::recv,
                                              .path = folder.file("output"),
                                              .address = memory,
                                              .size = parked_content_bytes,
                                              .route = route});
    EXPECT_TRUE(eventually([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::uint64_t now = on.plan->seen(FaultPoint::queued_write);
      return now > 0 && now == std::exchange(most, now);
    }));
    on.plan->clear();
    EXPECT_TRUE(transfer->wait(no_hang));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  }
  EXPECT_TRUE(on.runtime->free(memory));
  return most;
}

TEST(ParkedPieces, give_every_place_away_at_the_end) {
  constexpr std::size_t count = 4;
  std::vector<std::vector<std::byte>> places(count, std::vector<std::byte>(64));
  ParkedPieces parked;
  for (std::size_t index = 0; index < count; ++index) {
    const ParkedPiece piece{places[index].data(), 0, 64 * index, 64};
    if (index + 1 < count) {
      parked.add(piece);
    } else {
      parked.add_last(piece);
    }
  }
  for (std::size_t index = 0; index < 2; ++index) {
    const auto piece = parked.take_to_write(64 * count);
    ASSERT_TRUE(piece);
    parked.written(piece->memory);
  }
  EXPECT_EQ(parked.take_spare(), places[1].data());
  EXPECT_EQ(parked.take_spare(), places[0].data());
  EXPECT_EQ(parked.take_spare(), nullptr);
  std::uint64_t bytes = 0;
  while (const auto piece = parked.take_newest()) {
    bytes += piece->size_bytes;
  }
  EXPECT_EQ(bytes, 2 * 64U);
  EXPECT_EQ(parked.bytes(), 0U);
}

TEST(ParkedReceive, has_as_many_writes_under_way_as_an_ordinary_one) {
  const std::uint64_t ordinary = writes_at_once(Route::pipelined);
  EXPECT_GT(ordinary, 1U);
  EXPECT_EQ(writes_at_once(Route::parked), ordinary);
}

TEST_F(ParkedReceiveTest, writes_before_the_device_is_drained) {
  for (const bool in_memory : {false, true}) {
    SCOPED_TRACE(in_memory ? "file in memory" : "file on a drive");
    const std::string path = (in_memory ? memory_folder_ : folder_).file("output");
    on_.device_faults->hold(DeviceOperation::copy_to_host, 3);
    const auto transfer = submit(path);
    ASSERT_TRUE(on_.device_faults->wait_until_held(1, no_hang));
    EXPECT_TRUE(eventually([&] { return transfer->bytes_done() >= 7 * mebibyte; }));
    EXPECT_FALSE(transfer->progress().released);
    on_.device_faults->release_held();
    ASSERT_TRUE(transfer->wait(no_hang));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    expect_written(path);
  }
}

TEST_F(ParkedReceiveTest, has_left_the_device_while_its_first_writes_are_under_way) {
  on_.plan->add({.point = FaultPoint::queued_write,
                 .kind = FaultKind::hold,
                 .times = std::numeric_limits<std::uint64_t>::max()});
  const auto transfer = submit(output_);
  ASSERT_TRUE(transfer->wait_released(no_hang));
  EXPECT_FALSE(transfer->finished());
  std::memset(device_bytes(memory_), 0x5A, parked_content_bytes);  // it is the caller's again
  on_.plan->clear();
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  expect_written(output_);
}

TEST_F(ParkedReceiveTest, gives_the_bytes_wherever_they_begin_in_whichever_file) {
  for (const bool in_memory : {false, true}) {
    for (const std::uint64_t offset : {0U, 1U, 4095U, 4096U, 8192U + 13U}) {
      SCOPED_TRACE(std::string(in_memory ? "in memory" : "on a drive") + ", from " +
                   std::to_string(offset));
      const std::string path = (in_memory ? memory_folder_ : folder_).file("output");
      const auto old = random_bytes(offset, 5);
      write_whole(path, old);
      const auto transfer = submit(path, offset);
      ASSERT_TRUE(transfer->wait(no_hang));
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      expect_written(path, offset);
      EXPECT_TRUE(std::equal(old.begin(), old.end(), read_whole(path).begin()));
      EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
    }
  }
}

TEST_F(ParkedReceiveTest, writes_but_the_edges_past_the_page_cache) {
  write_whole(output_, random_bytes(13, 5));
  const std::uint64_t before = on_.plan->seen(FaultPoint::write);
  const auto transfer = submit(output_, 13);
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  expect_written(output_, 13);
  EXPECT_LE(on_.plan->seen(FaultPoint::write) - before, 2U);
}

TEST_F(SmallParkingTest, is_filled_again_until_the_device_is_drained) {
  for (const bool in_memory : {false, true}) {
    const std::string path = (in_memory ? memory_folder_ : folder_).file("output");
    write_whole(path, random_bytes(1, 5));
    const auto transfer = submit(path, 1);
    std::uint64_t most = 0;
    while (!transfer->wait(std::chrono::milliseconds(0))) {
      most = std::max(most, on_.state().engine->parked_bytes());
    }
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_LE(most, parking_bytes);
    EXPECT_LE(transfer->host_memory.most_bytes(), parking_bytes) << report_json(*transfer);
    EXPECT_EQ(transfer->tally(Lane::parked).bytes, parked_content_bytes);
    EXPECT_TRUE(transfer->progress().released);
    expect_written(path, 1);
    EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
  }
}

TEST_F(SmallParkingTest, that_is_full_with_writes_that_do_not_end_is_left_when_cancelled) {
  write_whole(output_, random_bytes(8192, 5));
  on_.plan->add({.point = FaultPoint::queued_write,
                 .kind = FaultKind::hold,
                 .after = 3,
                 .times = std::numeric_limits<std::uint64_t>::max()});
  const auto transfer = submit(output_, 8192);
  EXPECT_TRUE(eventually([&] { return transfer->bytes_done() > 0; }));
  EXPECT_TRUE(eventually([&] { return on_.state().engine->parked_bytes() == parking_bytes; }));
  transfer->cancel();
  on_.plan->clear();
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_EQ(transfer->status(), Status::cancelled);
  EXPECT_LT(std::filesystem::file_size(output_), 8192 + parked_content_bytes);
  expect_all_but_missing(*transfer, read_whole(output_).data() + 8192, content_.data());
  EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
}

// A busy machine may take longer for the other one than the drain lasts: then once more.
TEST_F(OneThreadTest, is_lent_to_another_transfer_while_the_device_is_drained) {
  bool was_lent = false;
  for (int turn = 0; turn < 5 && !was_lent; ++turn) {
    on_.device_faults->hold(DeviceOperation::copy_to_host, 1);
    on_.device_faults->delay(DeviceOperation::copy_to_host, 2, std::chrono::milliseconds(100), 5);
    const auto transfer = submit(output_);
    ASSERT_TRUE(on_.device_faults->wait_until_held(1, no_hang));
    const auto other = submit_send();
    on_.device_faults->release_held();
    ASSERT_TRUE(other->wait(no_hang));
    was_lent = !transfer->progress().released;
    ASSERT_TRUE(transfer->wait(no_hang));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    expect_written(output_);
    EXPECT_TRUE(on_.runtime->free(other->address()));
    on_.device_faults->clear();
  }
  EXPECT_TRUE(was_lent) << "it kept its thread until the device was drained";
}

TEST_F(TwoThreadsTest, go_on_to_drain_after_one_was_lent_to_another_transfer) {
  on_.plan->add({.point = FaultPoint::queued_write,
                 .kind = FaultKind::hold,
                 .times = std::numeric_limits<std::uint64_t>::max()});
  const auto transfer = submit(output_);
  EXPECT_TRUE(eventually([&] { return on_.state().engine->parked_bytes() == parking_bytes; }));
  const auto other = submit_send();
  ASSERT_TRUE(other->wait(no_hang));
  EXPECT_TRUE(eventually([&] { return transfer->parked.draining(); }));
  on_.plan->clear();
  ASSERT_TRUE(transfer->wait(no_hang));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  expect_written(output_);
  EXPECT_TRUE(on_.runtime->free(other->address()));
}

// ThreadSanitizer makes each step take ten times as long.
constexpr std::uint64_t stride = thread_sanitized ? 2 : 1;

// Every step fails once; that each fault was met is what ends its row.
class ParkedStepsTest : public SmallParkingTest {
 protected:
  // Behind what the file has, so that it grows in place. Whether the fault was met.
  bool fails_at(const std::string& path, const std::function<bool()>& struck) const {
    constexpr std::uint64_t offset = 4096 + 77;
    write_whole(path, random_bytes(offset, 6));
    std::shared_ptr<Transfer> transfer;
    try {
      transfer = submit(path, offset);
    } catch (const Error& error) {
      EXPECT_NE(error.failure().status, Status::internal) << error.what();
      return struck();
    }
    EXPECT_TRUE(transfer->wait(no_hang)) << "the transfer hangs";
    const bool met = struck();
    EXPECT_EQ(on_.state().engine->parked_bytes(), 0U);
    EXPECT_NE(transfer->status(), Status::internal) << transfer->failure_message();
    if (transfer->failed()) {
      EXPECT_LT(std::filesystem::file_size(path), offset + parked_content_bytes)
          << "it looks complete: " << transfer->failure_message();
    }
    auto output = read_whole(path);
    output.resize(offset + parked_content_bytes);
    expect_all_but_missing(*transfer, output.data() + offset, content_.data());
    return met;
  }

  void expect_storage_step(const std::string& path, FaultPoint point) const {
    constexpr std::uint64_t steps_max = 60;
    for (std::uint64_t step = 0; step < steps_max; step += stride * (1 + step / 3)) {
      SCOPED_TRACE("storage " + std::to_string(static_cast<int>(point)) + ", step " +
                   std::to_string(step));
      const std::uint64_t before = on_.plan->struck();
      on_.plan->add({.point = point, .after = step});
      const bool met = fails_at(path, [&] { return on_.plan->struck() > before; });
      on_.plan->clear();
      if (!met) {
        return;
      }
    }
  }

  void expect_device_step(const std::string& path,
                          DeviceOperation operation,
                          std::uint64_t step) const {
    SCOPED_TRACE(std::string(device_operation_name(operation)) + ", step " + std::to_string(step));
    on_.device_faults->fail(
        operation, step, {.status = Status::device_error, .operation = "a test's"});
    static_cast<void>(fails_at(path, [] { return true; }));
    on_.device_faults->clear();
  }
};

TEST_F(ParkedStepsTest, a_storage_that_fails_leaves_no_file_that_looks_complete) {
  for (const FaultPoint point : {FaultPoint::queued_write,
                                 FaultPoint::write,
                                 FaultPoint::submit,
                                 FaultPoint::reap,
                                 FaultPoint::create_queue,
                                 FaultPoint::allocate}) {
    expect_storage_step(output_, point);
  }
  for (const FaultPoint point : {FaultPoint::write, FaultPoint::map, FaultPoint::size}) {
    expect_storage_step(memory_folder_.file("output"), point);
  }
}

TEST_F(ParkedStepsTest, a_device_that_fails_leaves_no_file_that_looks_complete) {
  for (const DeviceOperation operation : {DeviceOperation::copy_to_host,
                                          DeviceOperation::allocate_pinned,
                                          DeviceOperation::create_stream,
                                          DeviceOperation::create_event,
                                          DeviceOperation::record}) {
    constexpr std::array<std::uint64_t, 4> steps{1, 4, 2, 7};
    for (const std::uint64_t step : std::span(steps).first(steps.size() / stride)) {
      expect_device_step(output_, operation, step);
      expect_device_step(memory_folder_.file("output"), operation, step);
    }
  }
}

}  // namespace
}  // namespace hippogriff
