// A transfer's own bound of host memory: what it counts, what plans make of it, what lanes use.
#include "transfer/host_budget.hpp"

#include "testing/effort.hpp"
#include "testing/faulty_device.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>

#include <random>
#include <thread>

namespace hippogriff {
namespace {

TEST(HostBudget, is_given_out_to_its_last_step_and_no_further) {
  HostBudget budget(11 * mebibyte);
  EXPECT_EQ(budget.bytes(), 8 * mebibyte);
  EXPECT_TRUE(budget.take_of_half(4 * mebibyte));
  EXPECT_FALSE(budget.take_of_half(1)) << "half is for others";
  EXPECT_TRUE(budget.take(4 * mebibyte));
  EXPECT_FALSE(budget.take(1));
  budget.give_back(2 * mebibyte);
  EXPECT_EQ(budget.left_bytes(), 2 * mebibyte);
  EXPECT_TRUE(budget.take(2 * mebibyte));
  EXPECT_EQ(budget.most_bytes(), 8 * mebibyte);
  HostBudget refused(8 * mebibyte);
  EXPECT_TRUE(refused.take(2 * mebibyte));
  EXPECT_TRUE(refused.take(4 * mebibyte));
  refused.give_back_unused(4 * mebibyte);
  EXPECT_EQ(refused.most_bytes(), 2 * mebibyte) << "what was not there was not used";
  refused.give_back(2 * mebibyte);
  EXPECT_EQ(refused.most_bytes(), 2 * mebibyte);
  HostBudget any(0);
  EXPECT_FALSE(any.bounded());
  EXPECT_TRUE(any.take(std::uint64_t{1} << 50U));
  EXPECT_TRUE(any.take_of_half(std::uint64_t{1} << 50U));
}

// As a lane does it, over and over: up to three slots, and all of them back.
void use_slots(Pinbuffer& pinbuffer, HostBudget& budget) {
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::byte*> slots;
    while (slots.size() < 3 && budget.take(Pinbuffer::slot_bytes)) {
      slots.push_back(pinbuffer.acquire(std::chrono::seconds(10)));
      ASSERT_NE(slots.back(), nullptr);
    }
    for (std::byte* slot : slots) {
      pinbuffer.release(slot);
      budget.give_back(Pinbuffer::slot_bytes);
    }
  }
}

// Pinning takes a while: threads that want slots meanwhile must not each pin a segment of their
// own.
TEST(HostBudget, slots_within_budgets_never_make_the_pinbuffer_larger_than_these) {
  const auto faults = std::make_shared<DeviceFaults>();
  faults->delay(DeviceOperation::allocate_pinned, 1, std::chrono::milliseconds(2), 1000);
  const auto device = make_faulty_device(linked_device(), faults);
  for (int round = 0; round < 5; ++round) {
    Pinbuffer pinbuffer(*device, 64 * mebibyte);
    HostBudget first(8 * mebibyte);
    HostBudget second(12 * mebibyte);
    std::vector<std::thread> threads;
    for (int number = 0; number < 8; ++number) {
      threads.emplace_back([&, number] { use_slots(pinbuffer, number % 2 == 0 ? first : second); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_LE(first.most_bytes(), 8 * mebibyte);
    EXPECT_LE(second.most_bytes(), 12 * mebibyte);
    EXPECT_LE(pinbuffer.allocated_bytes(), 20 * mebibyte);
  }
}

class HostMemoryTest : public ::testing::Test {
 protected:
  // More cores than CI has, so that plans would be wide.
  static Settings wide() {
    Settings settings = test_settings();
    settings.cores = 16;
    return settings;
  }

  static std::uint64_t budget_of(const Submission& submission) {
    return HostBudget(submission.host_memory_bytes).bytes();
  }

  static void expect_within(const Transfer& transfer, const Submission& submission) {
    const Plan& plan = transfer.decision().choice().plan;
    EXPECT_LE(plan.buffered_channels * 2 + plan.direct_io_depth,
              budget_of(submission) / Pinbuffer::slot_bytes);
    EXPECT_LE(transfer.host_memory.most_bytes(), budget_of(submission)) << report_json(transfer);
    EXPECT_EQ(transfer.host_memory.bounded(), submission.host_memory_bytes > 0);
  }

  TemporaryFolder folder_;
  TemporaryFolder memory_folder_{"/dev/shm"};
};

TEST_F(HostMemoryTest, sends_of_files_in_every_state_stay_within_their_budgets) {
  const auto content = random_bytes(30 * mebibyte + 4321, 21);
  const std::string on_drive = folder_.file("data");
  const std::string in_memory = memory_folder_.file("data");
  write_whole(on_drive, content);
  write_whole(in_memory, content);
  std::mt19937_64 random(22);
  for (int round = 0; round < rounds_of(20); ++round) {
    Runtime runtime(wide(), make_system_storage(), {linked_device()});
    Submission submission{.path = round % 5 == 4 ? in_memory : on_drive};
    submission.host_memory_bytes = 4 * mebibyte + random() % (round % 2 == 0 ? 8 : 48) * mebibyte;
    const std::array routes = {
        Route::automatic, Route::automatic, Route::pipelined, Route::mapped, Route::parked};
    submission.route = routes[random() % routes.size()];
    ASSERT_TRUE(same_bytes(read_whole(on_drive), content));  // warm
    if (round % 3 > 0) {                                     // cold, or half of it
      drop_cache(on_drive, 0, round % 3 == 1 ? content.size() : content.size() / 2);
    }
    SCOPED_TRACE("round " + std::to_string(round) + ", route " +
                 std::string(route_name(submission.route)) + ", " +
                 std::to_string(submission.host_memory_bytes));
    const auto transfer = runtime.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
    expect_within(*transfer, submission);
    const Engine& engine = *runtime.device("linked").engine;
    EXPECT_LE(engine.pinned_bytes(), budget_of(submission)) << report_json(*transfer);
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
}

TEST_F(HostMemoryTest, receives_stay_within_their_budgets) {
  const auto content = random_bytes(24 * mebibyte + 77, 23);
  std::mt19937_64 random(24);
  for (int round = 0; round < rounds_of(16); ++round) {
    Runtime runtime(wide(), make_system_storage(), {linked_device()});
    DeviceState& state = runtime.device("linked");
    const DeviceAddress memory = state.allocate(content.size());
    std::memcpy(device_bytes(memory), content.data(), content.size());
    Submission submission{.direction = Direction::recv, .address = memory, .size = content.size()};
    submission.path = (round % 2 == 0 ? folder_ : memory_folder_).file("out");
    submission.route = round % 4 < 2 ? Route::automatic : Route::parked;
    submission.host_memory_bytes = (4 + random() % 30) * mebibyte;
    SCOPED_TRACE("round " + std::to_string(round) + ", " +
                 std::to_string(submission.host_memory_bytes));
    const auto transfer = runtime.submit(submission);
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_TRUE(read_whole(submission.path) == content);
    expect_within(*transfer, submission);
    EXPECT_LE(state.engine->pinned_bytes(), budget_of(submission));
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
}

// Idle channels join transfers that have much to do, and several grow the pinbuffer at once.
TEST_F(HostMemoryTest, transfers_side_by_side_use_no_more_than_their_budgets_together) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes((thread_sanitized ? 24 : 60) * mebibyte, 25);
  write_whole(path, content);
  for (int round = 0; round < 6; ++round) {
    Runtime runtime(wide(), make_system_storage(), {linked_device()});
    ASSERT_TRUE(same_bytes(read_whole(path), content));
    if (round % 2 == 1) {
      drop_cache(path, 0, content.size() / 2);
    }
    std::vector<std::shared_ptr<Transfer>> transfers;
    Submission submission{.path = path};
    submission.host_memory_bytes = round < 3 ? 4 * mebibyte : 8 * mebibyte;
    for (int number = 0; number < 4; ++number) {
      transfers.push_back(runtime.submit(submission));
    }
    for (const auto& transfer : transfers) {
      ASSERT_TRUE(transfer->wait(long_enough));
      ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
      EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
      expect_within(*transfer, submission);
    }
    EXPECT_LE(runtime.device("linked").engine->pinned_bytes(), 4 * budget_of(submission));
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
}

TEST_F(HostMemoryTest, a_send_that_waits_for_its_device_parks_within_half_of_it_when_asked_to) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(40 * mebibyte, 26);
  write_whole(path, content);
  for (const Route route : {Route::automatic, Route::parked}) {
    Runtime runtime(wide(), make_system_storage(), {linked_device()});
    const DeviceAddress holder = runtime.device("linked").allocate(230 * mebibyte);
    Submission submission{.path = path, .route = route};
    submission.memory_timeout_ms = 60'000;
    submission.host_memory_bytes = 16 * mebibyte;
    const auto transfer = runtime.submit(submission);
    const std::uint64_t expected = route == Route::parked ? 8 * mebibyte : 0;
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (transfer->parked_bytes() < expected && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(transfer->parked_bytes(), expected);
    EXPECT_TRUE(runtime.free(holder));
    runtime.device("linked").engine->memory_freed();
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
    expect_within(*transfer, submission);
    EXPECT_TRUE(runtime.shutdown(long_enough));
  }
}

TEST_F(HostMemoryTest, less_than_one_channel_needs_is_refused_with_the_least) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(mebibyte, 27));
  Runtime runtime(wide(), make_system_storage(), {linked_device()});
  Submission submission{.path = path};
  for (const std::uint64_t bytes : {std::uint64_t{1}, HostBudget::bytes_min - 1}) {
    submission.host_memory_bytes = bytes;
    try {
      runtime.submit(submission);
      FAIL() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("4194304 bytes"), std::string::npos) << error.what();
    }
  }
  submission.host_memory_bytes = HostBudget::bytes_min;
  const auto transfer = runtime.submit(submission);
  ASSERT_TRUE(transfer->wait(long_enough));
  EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
  const std::string report = report_json(*transfer);
  EXPECT_NE(report.find("\"host_memory_budget_bytes\": 4194304"), std::string::npos) << report;
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

}  // namespace
}  // namespace hippogriff
