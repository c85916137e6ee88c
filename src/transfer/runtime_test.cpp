// Transfers against the slow obvious version: what pread and pwrite would have done.
#include "transfer/runtime.hpp"

#include "testing/effort.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/outlook.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace hippogriff {
namespace {

class RuntimeTest : public ::testing::Test {
 protected:
  RuntimeTest()
      : linked_(linked_device()),
        plain_(plain_device()),
        runtime_(test_settings(), make_system_storage(), {linked_, plain_}) {}

  void TearDown() override { EXPECT_TRUE(runtime_.shutdown(long_enough)); }

  // Moves an extent to the device and compares what arrived.
  void send_and_compare(const std::vector<std::byte>& content, const Submission& submission) {
    const auto transfer = runtime_.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    const Range extent = transfer->request().extent;
    EXPECT_EQ(
        std::memcmp(device_bytes(transfer->address()), content.data() + extent.offset, extent.size),
        0)
        << report_json(*transfer);
    EXPECT_TRUE(transfer->missing().empty());
    EXPECT_EQ(transfer->bytes_done(), extent.size);
    EXPECT_TRUE(runtime_.free(transfer->address()));
  }

  // Moves `result` from the device "linked" over what a file had `before`, and compares the whole
  // file. `access`: of a descriptor, or -1 to go by path. Returns the plan.
  static Plan recv_and_compare(Runtime& runtime,
                               Submission submission,
                               int access,
                               std::vector<std::byte> before,
                               const std::vector<std::byte>& result) {
    const std::string path = submission.path;
    const DeviceAddress address = runtime.device("linked").allocate(result.size());
    std::memcpy(device_bytes(address), result.data(), result.size());
    submission.direction = Direction::recv;
    submission.size = result.size();
    submission.address = address;
    if (access >= 0) {
      submission.path.clear();
      submission.fd = open(path.c_str(), access | O_CLOEXEC);
      EXPECT_GE(submission.fd, 0);
    }
    const auto transfer = runtime.submit(submission);
    EXPECT_TRUE(transfer->wait(long_enough));
    if (access >= 0) {
      close(submission.fd);
    }
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    before.resize(std::max<std::uint64_t>(before.size(), submission.offset + result.size()));
    std::memcpy(before.data() + submission.offset, result.data(), result.size());
    EXPECT_TRUE(same_bytes(read_whole(path), before)) << report_json(*transfer);
    EXPECT_TRUE(runtime.free(address));
    return transfer->decision().choice().plan;
  }

  TemporaryFolder folder_;
  std::shared_ptr<Device> linked_;
  std::shared_ptr<Device> plain_;
  Runtime runtime_;
};

TEST_F(RuntimeTest, send_of_random_extents_by_every_route_gives_the_files_bytes) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(70 * mebibyte + 12345, 1);
  write_whole(path, content);
  std::mt19937_64 random(2);
  for (int round = 0; round < rounds_of(60); ++round) {
    drop_cache(path, random() % content.size(), random() % content.size());
    Submission submission{.path = path};
    submission.offset = random() % content.size();
    submission.size = 1 + random() % (content.size() - submission.offset);
    submission.device = round % 3 == 0 ? "host" : "linked";
    const std::array routes = {
        Route::automatic, Route::pipelined, Route::mapped, Route::parked, Route::direct};
    submission.route = routes[random() % (round % 3 == 0 ? 5 : 4)];
    SCOPED_TRACE(std::string(route_name(submission.route)) + " to " + submission.device + ", " +
                 std::to_string(submission.size) + " bytes at " +
                 std::to_string(submission.offset));
    send_and_compare(content, submission);
  }
}

// The file's last page is there, but the file ends inside it: a mapping would take bytes beyond the
// end and not lengthen the file.
TEST_F(RuntimeTest, recv_through_a_mapping_lengthens_a_file_within_its_last_page) {
  const TemporaryFolder memory_folder("/dev/shm");
  const std::string path = memory_folder.file("out");
  Settings settings = test_settings();
  settings.cores = 16;
  Runtime runtime(settings, make_system_storage(), {linked_device()});
  Calibration slow_writes = default_calibration("cuda:0", "tmpfs");
  slow_writes.link.to_host = {50e9, 1e-12};
  slow_writes.host.cached_write_per_channel = {0.1e9, 1e-9};
  slow_writes.host.cached_write_max = 0.1e9;
  const std::string link = link_key(runtime.device("linked").device->info());
  int through_a_mapping = 0;

  struct Lengthening {
    std::uint64_t before;
    std::uint64_t offset;
    std::uint64_t end;
  };

  for (const auto& [before_bytes, offset, end] :
       {Lengthening{24 * mebibyte - 100, 0, 24 * mebibyte - 50},
        Lengthening{24 * mebibyte - 100, 20 * mebibyte + 1, 24 * mebibyte},
        Lengthening{259990, 0, 260000},
        Lengthening{300000, 200001, 400000},
        Lengthening{10, 0, 3000}}) {
    SCOPED_TRACE(std::to_string(before_bytes) + " bytes, then up to " + std::to_string(end));
    runtime.calibration().put(link, "tmpfs", slow_writes);
    const auto expected = random_bytes(before_bytes, before_bytes);
    write_whole(path, expected);
    const auto result = random_bytes(end - offset, end);
    const auto plan =
        recv_and_compare(runtime, {.path = path, .offset = offset}, O_RDWR, expected, result);
    through_a_mapping += plan.buffered_channels >= EngineShape::mapped_write_channels_min ? 1 : 0;
  }
  EXPECT_GE(through_a_mapping, 3);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

// Plans are those for a GPU then, however slow this machine is.
void forget_what_was_seen(Runtime& runtime) {
  const std::string link = link_key(runtime.device("mixing").device->info());
  runtime.calibration().put(link, "any", default_calibration("cuda:0", "any"));
}

// As on a GPU: windows mapped from the end while channels read from the start, on one stream.
TEST_F(RuntimeTest, send_that_mixes_mapped_windows_with_reads_gives_the_files_bytes) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(320 * mebibyte + 4321, 11);
  write_whole(path, content);
  Settings settings = test_settings();
  settings.cores = 8;
  settings.mapped_after_bytes = 0;
  const auto device = mixing_device();
  Runtime runtime(settings, make_system_storage(), {device});
  std::uint64_t mapped_bytes = 0;
  std::uint64_t read_bytes = 0;
  for (const std::uint64_t offset : {std::uint64_t{0}, 40 * mebibyte + 1}) {
    Submission submission{.path = path};
    submission.offset = offset;
    forget_what_was_seen(runtime);
    const auto transfer = runtime.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_EQ(transfer->decision().choice().plan.mapped_channels, 1U) << report_json(*transfer);
    EXPECT_EQ(
        std::memcmp(
            device_bytes(transfer->address()), content.data() + offset, content.size() - offset),
        0)
        << report_json(*transfer);
    mapped_bytes += transfer->tally(Lane::mapped).bytes;
    read_bytes += transfer->tally(Lane::buffered).bytes;
    EXPECT_TRUE(runtime.free(transfer->address()));
  }
  EXPECT_GT(mapped_bytes, 0U);
  EXPECT_GT(read_bytes, 0U);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

// What registering needs holds others up while it is made: short programs never pay for it.
TEST_F(RuntimeTest, sends_are_mixed_with_mapped_windows_once_much_was_read) {
  const std::string path = folder_.file("data");
  constexpr std::uint64_t size_bytes = 256 * mebibyte;
  const auto content = random_bytes(size_bytes, 12);
  write_whole(path, content);
  Settings settings = test_settings();
  settings.cores = 8;
  settings.mapped_after_bytes = 2 * size_bytes;
  const auto device = mixing_device();
  Runtime runtime(settings, make_system_storage(), {device});
  const DeviceAddress memory = runtime.device("mixing").allocate(size_bytes);
  // Sends the file, which whoever else uses this machine's memory may have pushed out of the cache.
  const auto send = [&] {
    forget_what_was_seen(runtime);
    EXPECT_EQ(read_whole(path).size(), size_bytes);
    const auto transfer = runtime.submit({.path = path, .address = memory});
    EXPECT_TRUE(transfer->wait(long_enough));
    EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
    return transfer;
  };
  std::uint64_t read_bytes = 0;
  while (read_bytes < settings.mapped_after_bytes && !HasFailure()) {
    EXPECT_FALSE(device->registers_aside_now());
    const auto transfer = send();
    EXPECT_EQ(transfer->decision().choice().plan.mapped_channels, 0U) << report_json(*transfer);
    read_bytes += transfer->tally(Lane::buffered).bytes;
  }
  // A transfer is over for its waiters a moment before the engine counts it.
  const auto deadline = Clock::now() + long_enough;
  while (!device->registers_aside_now() && Clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto transfer = send();
  EXPECT_EQ(transfer->decision().choice().plan.mapped_channels, 1U) << report_json(*transfer);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

// Models are loaded once, by programs that want the device's memory for themselves.
TEST_F(RuntimeTest, sends_to_several_destinations_do_not_make_mapping_possible) {
  const std::string path = folder_.file("data");
  constexpr std::uint64_t size_bytes = 256 * mebibyte;
  write_whole(path, random_bytes(size_bytes, 13));
  Settings settings = test_settings();
  settings.mapped_after_bytes = 1;
  const auto device = mixing_device();
  Runtime runtime(settings, make_system_storage(), {device});
  const DeviceAddress memory = runtime.device("mixing").allocate(size_bytes);
  const Destinations halves = {{{0, size_bytes / 2}, memory},
                               {{size_bytes / 2, size_bytes / 2}, memory + size_bytes / 2}};
  const auto transfer = runtime.submit({.path = path, .destinations = halves});
  ASSERT_TRUE(transfer->wait(long_enough));
  ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_GT(transfer->tally(Lane::buffered).bytes, 0U) << "that would have counted";
  EXPECT_TRUE(runtime.shutdown(long_enough)) << "its threads have counted what they wanted to";
  EXPECT_FALSE(device->registers_aside_now());
}

// With more cores than CI has: several channels, which write a file in memory through a mapping.
TEST_F(RuntimeTest, recv_of_random_extents_through_a_mapping_writes_the_devices_bytes) {
  const TemporaryFolder memory_folder("/dev/shm");
  const std::string path = memory_folder.file("out");
  Settings settings = test_settings();
  settings.cores = 16;
  Runtime runtime(settings, make_system_storage(), {linked_device()});
  Calibration fast_link = default_calibration("cuda:0", "tmpfs");
  fast_link.link.to_host = {50e9, 1e-12};
  runtime.calibration().put(link_key(runtime.device("linked").device->info()), "tmpfs", fast_link);
  std::mt19937_64 random(7);
  std::uint32_t widest = 0;
  for (int round = 0; round < rounds_of(24); ++round) {
    const auto before = random_bytes(random() % (5 * mebibyte), 100 + random() % 1000);
    const auto result = random_bytes(1 + random() % (40 * mebibyte), 4 + random() % 1000);
    write_whole(path, before);
    const std::uint64_t offset = random() % 3 == 0 ? 0 : random() % (before.size() + 1);
    // By descriptor, open for reading too or not, and by path.
    const int access = round % 3 == 0 ? O_WRONLY : round % 3 == 1 ? O_RDWR : -1;
    const auto plan =
        recv_and_compare(runtime, {.path = path, .offset = offset}, access, before, result);
    widest = std::max(widest, plan.buffered_channels);
  }
  EXPECT_GE(widest, 4U);
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(RuntimeTest, recv_of_random_extents_by_every_route_writes_the_devices_bytes) {
  std::mt19937_64 random(3);
  const TemporaryFolder memory_folder("/dev/shm");
  for (int round = 0; round < rounds_of(40); ++round) {
    const std::string path = round % 2 == 0 ? folder_.file("out") : memory_folder.file("out");
    const auto before = random_bytes(random() % (5 * mebibyte), 100 + random() % 1000);
    const auto result = random_bytes(1 + random() % (12 * mebibyte), 4 + random() % 1000);
    write_whole(path, before);
    Submission submission{.direction = Direction::recv, .path = path};
    submission.offset = random() % 3 == 0 ? 0 : random() % (before.size() + 1);
    submission.size = result.size();
    DeviceState& state = runtime_.device(round % 3 == 0 ? "host" : "linked");
    submission.address = state.allocate(result.size());
    std::memcpy(device_bytes(submission.address), result.data(), result.size());
    const std::array routes = {Route::automatic, Route::pipelined, Route::parked};
    submission.route = routes[random() % routes.size()];
    SCOPED_TRACE(std::string(route_name(submission.route)) + ", " +
                 std::to_string(submission.size) + " bytes at " +
                 std::to_string(submission.offset) + " over " + std::to_string(before.size()));
    const auto transfer = runtime_.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    auto expected = before;
    expected.resize(std::max(before.size(), submission.offset + result.size()));
    std::copy(result.begin(),
              result.end(),
              expected.begin() + static_cast<std::ptrdiff_t>(submission.offset));
    ASSERT_TRUE(same_bytes(read_whole(path), expected));
    EXPECT_TRUE(runtime_.free(submission.address));
  }
}

TEST_F(RuntimeTest, empty_rest_of_a_file_moves_nothing) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(1000, 1));
  const auto transfer = runtime_.submit({.path = path, .offset = 1000});
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_FALSE(transfer->failed());
  EXPECT_TRUE(transfer->address().is_null());
}

TEST_F(RuntimeTest, many_threads_move_many_extents_at_once) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(16 * mebibyte, 9);
  write_whole(path, content);
  std::vector<std::thread> threads;
  for (std::uint64_t index = 0; index < 100; ++index) {
    threads.emplace_back([&, index] {
      std::mt19937_64 random(index);
      for (int round = 0; round < 3; ++round) {
        Submission submission{.path = path};
        submission.offset = random() % (15 * mebibyte);
        submission.size = 1 + random() % mebibyte;
        submission.device = index % 2 == 0 ? "linked" : "host";
        send_and_compare(content, submission);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

TEST_F(RuntimeTest, channels_do_not_join_for_what_only_the_drives_lane_may_take) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(160 * mebibyte, 3);
  write_whole(path, content);
  drop_cache(path, 16 * mebibyte, content.size() - 16 * mebibyte);
  const auto transfer =
      runtime_.submit({.path = path, .device = "linked", .route = Route::pipelined});
  ASSERT_TRUE(transfer->wait(long_enough));
  ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_LE(transfer->tally(Lane::buffered).channels, 16U) << report_json(*transfer);
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
  EXPECT_TRUE(runtime_.free(transfer->address()));
}

TEST_F(RuntimeTest, overlapping_device_memory_is_refused_while_in_flight) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(8 * mebibyte, 9);
  write_whole(path, content);
  DeviceState& state = runtime_.device("linked");
  std::atomic<bool> go{false};  // outlives the stream, whose function asks for it
  const auto stream = linked_->create_stream();
  stream->launch([&] {
    while (!go) {
      std::this_thread::yield();
    }
  });
  Submission submission{.path = path,
                        .address = state.allocate(16 * mebibyte),
                        .flags = HIPPOGRIFF_AFTER_STREAM,
                        .stream = stream->native_handle()};
  const auto held = runtime_.submit(submission);
  Submission second = submission;
  second.flags = 0;
  second.address = submission.address + (8 * mebibyte - 1);
  try {
    runtime_.submit(second);
    ADD_FAILURE() << "an overlap was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::busy);
  }
  EXPECT_THROW(runtime_.free(submission.address), Error);
  second.address = submission.address + 8 * mebibyte;
  const auto beside = runtime_.submit(second);
  EXPECT_TRUE(beside->wait(long_enough));
  go = true;
  ASSERT_TRUE(held->wait(long_enough));
  EXPECT_FALSE(held->failed());
  EXPECT_EQ(std::memcmp(device_bytes(submission.address), content.data(), content.size()), 0);
}

TEST_F(RuntimeTest, send_parks_while_a_kernel_holds_the_memory) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(24 * mebibyte, 11);
  write_whole(path, content);
  DeviceState& state = runtime_.device("linked");
  const DeviceAddress memory = state.allocate(content.size());
  std::atomic<bool> go{false};  // outlive the stream, whose function asks for them
  std::atomic<bool> clean{true};
  const auto stream = linked_->create_stream();
  stream->launch([&] {
    while (!go) {
      std::this_thread::yield();
    }
    clean = std::all_of(device_bytes(memory),
                        device_bytes(memory) + content.size(),
                        [](std::byte byte) { return byte == std::byte{0}; });
  });
  std::memset(device_bytes(memory), 0, content.size());
  const auto transfer = runtime_.submit({.path = path,
                                         .address = memory,
                                         .flags = HIPPOGRIFF_AFTER_STREAM,
                                         .stream = stream->native_handle()});
  for (int wait = 0; wait < 2000 && transfer->parked_bytes() < content.size(); ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(transfer->parked_bytes(), content.size());
  EXPECT_FALSE(transfer->finished());
  go = true;
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_TRUE(clean);
  EXPECT_EQ(std::memcmp(device_bytes(memory), content.data(), content.size()), 0);
  EXPECT_EQ(transfer->tally(Lane::parked).bytes, content.size());
}

TEST_F(RuntimeTest, send_waits_for_device_memory_and_goes_on_when_it_is_freed) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(64 * mebibyte, 12);
  write_whole(path, content);
  DeviceState& state = runtime_.device("linked");
  const DeviceAddress holder = state.allocate(200 * mebibyte);
  const auto transfer =
      runtime_.submit({.path = path, .device = "linked", .memory_timeout_ms = 60'000});
  // The parking holds 32 MiB: the rest is read when there is room on the device.
  for (int wait = 0; wait < 2000 && transfer->parked_bytes() < 32 * mebibyte; ++wait) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(transfer->parked_bytes(), 32 * mebibyte);
  EXPECT_TRUE(transfer->address().is_null());
  EXPECT_TRUE(runtime_.free(holder));
  ASSERT_TRUE(transfer->wait(long_enough));
  ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
}

TEST_F(RuntimeTest, send_fails_when_no_device_memory_comes_in_time) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(64 * mebibyte, 12));
  DeviceState& state = runtime_.device("linked");
  const DeviceAddress holder = state.allocate(200 * mebibyte);
  const auto transfer =
      runtime_.submit({.path = path, .device = "linked", .memory_timeout_ms = 100});
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::out_of_device_memory);
  EXPECT_EQ(transfer->missing(), (std::vector<Range>{{0, 64 * mebibyte}}));
  EXPECT_EQ(state.engine->parked_bytes(), 0U);
  EXPECT_THROW(runtime_.submit({.path = path, .device = "linked", .memory_timeout_ms = -1}), Error);
  EXPECT_TRUE(runtime_.free(holder));
}

TEST_F(RuntimeTest, send_larger_than_the_device_is_refused_at_once) {
  const std::string path = folder_.file("data");
  write_whole(path, {});
  ASSERT_EQ(truncate(path.c_str(), 300 * mebibyte), 0);
  EXPECT_THROW(runtime_.submit({.path = path, .device = "linked"}), Error);
}

TEST_F(RuntimeTest, recv_leaves_the_device_while_sends_wait_for_its_memory) {
  const std::string input = folder_.file("in");
  write_whole(input, random_bytes(64 * mebibyte, 12));
  DeviceState& state = runtime_.device("linked");
  Calibration quick_memory = default_calibration("cuda:0", "any");
  quick_memory.link.register_new_pages = {100e9, 1e-12};  // to park in it is soon there
  runtime_.calibration().put(link_key(state.device->info()), "any", quick_memory);
  const DeviceAddress result = state.allocate(200 * mebibyte);
  const auto content = random_bytes(24 * mebibyte, 13);
  std::memcpy(device_bytes(result), content.data(), content.size());
  const auto waiting =
      runtime_.submit({.path = input, .device = "linked", .memory_timeout_ms = 60'000});
  const auto drained = runtime_.submit({.direction = Direction::recv,
                                        .path = folder_.file("out"),
                                        .address = result,
                                        .size = content.size(),
                                        .flags = HIPPOGRIFF_FREE_SOURCE});
  ASSERT_TRUE(drained->wait_released(long_enough));
  ASSERT_TRUE(waiting->wait(long_enough));
  ASSERT_TRUE(drained->wait(long_enough));
  EXPECT_FALSE(waiting->failed()) << waiting->failure_message();
  EXPECT_FALSE(drained->failed()) << drained->failure_message();
  EXPECT_EQ(drained->decision().chosen, Route::parked);
  EXPECT_TRUE(read_whole(folder_.file("out")) == content);
}

TEST_F(RuntimeTest, work_after_the_transfer_on_a_stream_sees_its_bytes) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(20 * mebibyte, 14);
  write_whole(path, content);
  DeviceState& state = runtime_.device("linked");
  const DeviceAddress memory = state.allocate(content.size());
  const auto stream = linked_->create_stream();
  const auto transfer =
      runtime_.submit({.path = path,
                       .address = memory,
                       .flags = HIPPOGRIFF_BEFORE_STREAM | HIPPOGRIFF_AFTER_STREAM,
                       .stream = stream->native_handle()});
  std::atomic<int> seen{-1};
  stream->launch([&] { seen = std::memcmp(device_bytes(memory), content.data(), content.size()); });
  const auto event = linked_->create_event();
  stream->record(*event);
  ASSERT_TRUE(wait_for(*event, long_enough));
  EXPECT_EQ(seen, 0);
  EXPECT_TRUE(transfer->wait(long_enough));
}

TEST_F(RuntimeTest, cancelled_transfer_finishes_soon_and_says_what_is_missing) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(64 * mebibyte, 12));
  DeviceState& state = runtime_.device("linked");
  std::atomic<bool> go{false};  // outlives the stream, whose function asks for it
  const auto stream = linked_->create_stream();
  stream->launch([&] {
    while (!go) {
      std::this_thread::yield();
    }
  });
  const auto transfer = runtime_.submit({.path = path,
                                         .address = state.allocate(64 * mebibyte),
                                         .flags = HIPPOGRIFF_AFTER_STREAM,
                                         .stream = stream->native_handle()});
  transfer->cancel();
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::cancelled);
  EXPECT_EQ(transfer->missing(), (std::vector<Range>{{0, 64 * mebibyte}}));
  go = true;
}

// The file is let go of at the end, while others may still ask about the transfer.
TEST_F(RuntimeTest, cancel_may_come_while_a_transfer_ends) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(mebibyte, 12));
  const DeviceAddress address = runtime_.device("linked").allocate(mebibyte);
  for (int round = 0; round < rounds_of(1000); ++round) {
    const auto transfer =
        runtime_.submit({.path = path, .address = address, .route = Route::pipelined});
    const auto end = std::chrono::steady_clock::now() + long_enough;
    while (!transfer->finished() && std::chrono::steady_clock::now() < end) {
      if (transfer->bytes_done() == mebibyte) {
        transfer->cancel();
      }
    }
    ASSERT_TRUE(transfer->wait(long_enough));
    const Status status = transfer->status();
    ASSERT_TRUE(status == Status::ok || status == Status::cancelled);
  }
}

TEST_F(RuntimeTest, shutdown_cancels_what_is_in_flight) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(64 * mebibyte, 12));
  std::shared_ptr<Transfer> transfer;
  {
    auto device = linked_device();
    Runtime runtime(test_settings(), make_system_storage(), {device});
    const DeviceAddress holder = runtime.device("").allocate(250 * mebibyte);
    EXPECT_FALSE(holder.is_null());
    transfer = runtime.submit({.path = path, .memory_timeout_ms = 60'000});
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
  EXPECT_TRUE(transfer->finished());
  EXPECT_EQ(transfer->status(), Status::cancelled);
}

}  // namespace
}  // namespace hippogriff
