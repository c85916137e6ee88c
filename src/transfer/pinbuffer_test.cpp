// How the pool of pinned memory grows, and what lanes do while it does.
#include "transfer/pinbuffer.hpp"

#include "testing/eventually.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t segment_bytes = Pinbuffer::slot_bytes * Pinbuffer::segment_slots;
constexpr std::chrono::seconds no_time{0};
constexpr auto late = Pinbuffer::Growth::late;

class PinbufferTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::uint64_t pinbuffer_calls() const {
    return faults_->calls(DeviceOperation::allocate_pinned);
  }

  std::shared_ptr<DeviceFaults> faults_ = std::make_shared<DeviceFaults>();
  std::shared_ptr<Device> device_ = make_faulty_device(linked_device(), faults_);
};

TEST_F(PinbufferTest, one_segment_is_allocated_at_a_time) {
  faults_->delay(DeviceOperation::allocate_pinned, 1, std::chrono::milliseconds(5), 1000);
  Pinbuffer pinbuffer(*device_, 64 * mebibyte);
  std::array<std::byte*, 7> slots{};
  {
    std::vector<std::jthread> lanes;
    for (std::byte*& slot : slots) {
      lanes.emplace_back([&] { slot = pinbuffer.acquire(long_enough); });
    }
  }
  for (std::byte* slot : slots) {
    ASSERT_NE(slot, nullptr);
    pinbuffer.release(slot);
  }
  EXPECT_EQ(faults_->calls(DeviceOperation::allocate_pinned), 4U) << "two slots each";
  EXPECT_EQ(pinbuffer.allocated_bytes(), 4 * segment_bytes);
}

TEST_F(PinbufferTest, who_is_not_needed_any_more_after_a_wait_allocates_nothing) {
  faults_->block(DeviceOperation::allocate_pinned);
  Pinbuffer pinbuffer(*device_, 64 * mebibyte);
  std::byte* first = nullptr;
  std::atomic<bool> needed = true;
  std::array<std::byte*, 5> others{};
  std::vector<std::jthread> lanes;
  lanes.emplace_back([&] { first = pinbuffer.acquire(long_enough); });
  EXPECT_TRUE(faults_->wait_until_held(1, long_enough));
  for (std::byte*& slot : others) {
    lanes.emplace_back(
        [&] { slot = pinbuffer.acquire(long_enough, [&] { return needed.load(); }); });
  }
  // Who has slots does not wait for more.
  EXPECT_EQ(pinbuffer.acquire(std::chrono::seconds(0)), nullptr);
  needed = false;
  faults_->release_held();
  lanes.clear();
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(faults_->calls(DeviceOperation::allocate_pinned), 1U);
  EXPECT_GE(std::count(others.begin(), others.end(), nullptr), 4) << "one slot was left";
  pinbuffer.release(first);
  for (std::byte* slot : others) {
    if (slot != nullptr) {
      pinbuffer.release(slot);
    }
  }
}

TEST_F(PinbufferTest, whoever_waits_for_slots_that_are_lent_gives_up_when_not_needed_any_more) {
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::byte* first = pinbuffer.acquire(long_enough);
  std::byte* second = pinbuffer.acquire(long_enough);
  int asked = 0;
  EXPECT_EQ(pinbuffer.acquire(long_enough, [&] { return ++asked < 3; }), nullptr);
  EXPECT_EQ(asked, 3);
  std::jthread lane([&] { pinbuffer.release(first); });
  EXPECT_EQ(pinbuffer.acquire(long_enough), first);
  pinbuffer.release(first);
  pinbuffer.release(second);
}

TEST_F(PinbufferTest, what_comes_back_is_for_whoever_waits_already) {
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::byte* first = pinbuffer.acquire(long_enough);
  std::byte* second = pinbuffer.acquire(long_enough);
  for (int turn = 0; turn < 20; ++turn) {
    EXPECT_EQ(pinbuffer.acquire(std::chrono::seconds(0)), nullptr);
    EXPECT_FALSE(pinbuffer.is_short()) << "who has slots does not wait";
    std::byte* waited_for = nullptr;
    std::jthread lane([&] { waited_for = pinbuffer.acquire(long_enough); });
    ASSERT_TRUE(hippogriff::testing::eventually([&] { return pinbuffer.is_short(); }));
    pinbuffer.release(first);
    EXPECT_FALSE(pinbuffer.is_short()) << "one is enough";
    EXPECT_EQ(pinbuffer.acquire(std::chrono::seconds(0)), nullptr);
    lane.join();
    EXPECT_EQ(waited_for, first);
  }
  pinbuffer.release(first);
  pinbuffer.release(second);
}

TEST_F(PinbufferTest, it_is_not_short_while_it_grows) {
  faults_->block(DeviceOperation::allocate_pinned);
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::byte* first = nullptr;
  std::byte* second = nullptr;
  std::atomic<int> asked = 0;
  const auto wanted = [&asked] { return ++asked > 0; };
  std::jthread lane([&] { first = pinbuffer.acquire(long_enough, wanted); });
  EXPECT_TRUE(faults_->wait_until_held(1, long_enough));
  std::jthread other([&] { second = pinbuffer.acquire(long_enough, wanted); });
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return asked > 3; }));
  EXPECT_FALSE(pinbuffer.is_short());
  faults_->release_held();
  lane.join();
  other.join();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  pinbuffer.release(first);
  pinbuffer.release(second);
}

TEST_F(PinbufferTest, what_cannot_be_pinned_is_not_tried_for_each_slot) {
  const Failure none{.status = Status::out_of_host_memory, .operation = "allocate pinned memory"};
  faults_->fail(DeviceOperation::allocate_pinned, 2, none, 1000);
  Pinbuffer pinbuffer(*device_, 64 * mebibyte);
  std::byte* first = pinbuffer.acquire(long_enough);
  std::byte* second = pinbuffer.acquire(long_enough);
  for (int turn = 0; turn < 100; ++turn) {
    EXPECT_EQ(pinbuffer.acquire(std::chrono::seconds(0)), nullptr);
  }
  EXPECT_LT(faults_->calls(DeviceOperation::allocate_pinned), 50U);
  pinbuffer.release(first);
  pinbuffer.release(second);
}

TEST_F(PinbufferTest, parts_are_cut_from_slots_and_become_slots_again) {
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::vector<std::byte*> parts;
  for (const std::size_t bytes : {Pinbuffer::quarter_bytes, Pinbuffer::half_bytes}) {
    for (std::size_t index = 0; index < Pinbuffer::slot_bytes / bytes; ++index) {
      parts.push_back(pinbuffer.acquire_part(bytes, no_time, late));
      ASSERT_NE(parts.back(), nullptr);
      std::memset(parts.back(), 1, bytes);
    }
    EXPECT_EQ(parts.back() - parts[parts.size() - Pinbuffer::slot_bytes / bytes],
              Pinbuffer::slot_bytes - bytes)
        << "all of one slot";
  }
  EXPECT_EQ(pinbuffer.acquire_part(Pinbuffer::quarter_bytes, no_time, late), nullptr);
  EXPECT_EQ(pinbuffer.acquire(no_time), nullptr);
  pinbuffer.release(parts[2]);
  EXPECT_EQ(pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late), nullptr);
  EXPECT_EQ(pinbuffer.acquire_part(Pinbuffer::quarter_bytes, no_time, late), parts[2]);
  for (std::byte* part : parts) {
    pinbuffer.release(part);
  }
  std::byte* first = pinbuffer.acquire(no_time);
  std::byte* second = pinbuffer.acquire(no_time);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  pinbuffer.release(first);
  pinbuffer.release(second);
  EXPECT_EQ(faults_->calls(DeviceOperation::allocate_pinned), 1U);
}

TEST_F(PinbufferTest, a_part_that_does_not_come_back_is_pinned_late) {
  Pinbuffer pinbuffer(*device_, 64 * mebibyte);
  std::vector<std::byte*> parts;
  const auto take = [&](std::chrono::nanoseconds timeout) {
    parts.push_back(pinbuffer.acquire_part(Pinbuffer::half_bytes, timeout, late));
  };
  for (int count = 0; count < 4; ++count) {
    take(long_enough);
  }
  EXPECT_EQ(pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late), nullptr);
  EXPECT_EQ(faults_->calls(DeviceOperation::allocate_pinned), 1U);
  take(long_enough);
  EXPECT_EQ(faults_->calls(DeviceOperation::allocate_pinned), 2U);
  for (std::byte* part : parts) {
    ASSERT_NE(part, nullptr);
    pinbuffer.release(part);
  }
}

TEST_F(PinbufferTest, an_abandoned_part_is_lent_no_more) {
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::byte* lost = pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late);
  pinbuffer.abandon(lost);
  pinbuffer.release(lost);
  std::vector<std::byte*> others;
  while (std::byte* part = pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late)) {
    others.push_back(part);
  }
  EXPECT_EQ(others.size(), 3U);
  EXPECT_EQ(std::ranges::count(others, lost), 0);
  std::ranges::for_each(others, [&](std::byte* part) { pinbuffer.release(part); });
  std::byte* slot = pinbuffer.acquire(no_time);
  EXPECT_NE(slot, nullptr);
  EXPECT_EQ(pinbuffer.acquire(no_time), nullptr) << "the other is not whole";
  pinbuffer.release(slot);
}

TEST_F(PinbufferTest, slots_and_parts_that_are_lent_never_overlap) {
  Pinbuffer pinbuffer(*device_, 2 * segment_bytes);
  constexpr std::array sizes{
      Pinbuffer::quarter_bytes, Pinbuffer::half_bytes, Pinbuffer::slot_bytes};
  std::atomic<int> lent = 0;
  const auto use = [&](unsigned seed) {
    std::minstd_rand random(seed);
    for (int turn = 0; turn < 300; ++turn) {
      const std::size_t bytes = sizes.at(random() % sizes.size());
      std::byte* memory = bytes == Pinbuffer::slot_bytes
                              ? pinbuffer.acquire(long_enough)
                              : pinbuffer.acquire_part(bytes, long_enough, late);
      ASSERT_NE(memory, nullptr);
      ++lent;
      // Every quarter's first word is its holder's alone.
      for (std::size_t at = 0; at < bytes; at += Pinbuffer::quarter_bytes) {
        const auto before = std::atomic_ref(reinterpret_cast<unsigned&>(memory[at])).exchange(seed);
        ASSERT_EQ(before, 0U);
      }
      std::this_thread::yield();
      for (std::size_t at = 0; at < bytes; at += Pinbuffer::quarter_bytes) {
        const auto after = std::atomic_ref(reinterpret_cast<unsigned&>(memory[at])).exchange(0);
        ASSERT_EQ(after, seed);
      }
      pinbuffer.release(memory);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned seed = 1; seed <= 6; ++seed) {
      threads.emplace_back(use, seed);
    }
  }
  EXPECT_EQ(lent, 6 * 300);
}

TEST_F(PinbufferTest, grows_before_anybody_asks_while_it_is_wanted) {
  Pinbuffer pinbuffer(*device_, 4 * segment_bytes);
  pinbuffer.prepare(2 * segment_bytes, [] { return true; });
  EXPECT_EQ(pinbuffer.allocated_bytes(), 2 * segment_bytes);
  pinbuffer.prepare_one_more(2 * segment_bytes);
  EXPECT_EQ(pinbuffer.allocated_bytes(), 2 * segment_bytes) << "enough";
  pinbuffer.prepare(4 * segment_bytes, [&] { return pinbuffer_calls() < 3; });
  EXPECT_EQ(pinbuffer.allocated_bytes(), 3 * segment_bytes);
  pinbuffer.prepare(64 * segment_bytes, [] { return true; });
  EXPECT_EQ(pinbuffer.allocated_bytes(), 4 * segment_bytes) << "its bound";
}

TEST_F(PinbufferTest, what_cannot_be_pinned_before_is_asked_for_again_a_while_later) {
  const Failure none{.status = Status::out_of_host_memory, .operation = "allocate pinned memory"};
  faults_->fail(DeviceOperation::allocate_pinned, 2, none, 1000);
  Pinbuffer pinbuffer(*device_, 64 * mebibyte);
  pinbuffer.prepare(4 * segment_bytes, [] { return true; });
  pinbuffer.prepare_one_more(64 * mebibyte);
  EXPECT_EQ(pinbuffer_calls(), 2U);
  EXPECT_EQ(pinbuffer.allocated_bytes(), segment_bytes);
}

TEST_F(PinbufferTest, who_has_parts_takes_no_more_while_somebody_waits) {
  Pinbuffer pinbuffer(*device_, segment_bytes);
  std::byte* slot = pinbuffer.acquire(no_time);
  std::byte* first = pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late);
  std::byte* second = pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late);
  std::byte* waited_for = nullptr;
  std::jthread lane([&] { waited_for = pinbuffer.acquire(long_enough); });
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return pinbuffer.is_short(); }));
  pinbuffer.release(first);
  EXPECT_EQ(pinbuffer.acquire_part(Pinbuffer::half_bytes, no_time, late), nullptr);
  pinbuffer.release(second);
  lane.join();
  EXPECT_EQ(waited_for, std::min(first, second));
  pinbuffer.release(slot);
  pinbuffer.release(waited_for);
}

class FirstTransferTest : public PinbufferTest {
 protected:
  void TearDown() override { EXPECT_TRUE(runtime_->shutdown(long_enough)); }

  // More cores than CI has, so that plans are wide.
  void start(std::shared_ptr<Storage> storage) {
    Settings settings = test_settings();
    settings.cores = 16;
    runtime_ = std::make_unique<Runtime>(settings, std::move(storage), std::vector{device_});
  }

  TemporaryFolder folder_;
  std::unique_ptr<Runtime> runtime_;
};

// Pinning takes longer than moving a small file does: two lanes that have memory do all of it, and
// who waits for memory meanwhile pins none. Should one lane get both slots, it is stuck until there
// is another segment.
TEST_F(FirstTransferTest, of_a_small_file_pins_little) {
  faults_->block(DeviceOperation::allocate_pinned);
  const std::string path = folder_.file("data");
  const auto content = random_bytes(6 * mebibyte, 31);
  write_whole(path, content);
  start(make_system_storage());
  const auto transfer = runtime_->submit({.path = path, .route = Route::pipelined});
  EXPECT_TRUE(faults_->wait_until_held(1, long_enough));
  std::uint64_t segments_needed = 0;
  bool all_claimed = false;
  while (!all_claimed && segments_needed < 3) {
    faults_->release_held();
    ++segments_needed;
    all_claimed =
        hippogriff::testing::eventually([&] { return transfer->work.unclaimed_bytes() == 0; });
  }
  EXPECT_TRUE(all_claimed);
  faults_->clear();
  EXPECT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::ok) << transfer->failure_message();
  EXPECT_GE(transfer->decision().choice().plan.buffered_channels, 6U) << report_json(*transfer);
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
  // Whoever was pinning when the last piece was taken could not know it.
  EXPECT_LE(runtime_->device("linked").engine->pinned_bytes(),
            (segments_needed + 1) * segment_bytes);
}

// Channels share what there is: pinning more would take longer than all the rest.
TEST_F(FirstTransferTest, short_sends_pin_more_once_there_were_some) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(20 * mebibyte, 33);
  write_whole(path, content);
  start(make_system_storage());
  const auto send = [&] {
    const auto transfer = runtime_->submit({.path = path, .route = Route::pipelined});
    EXPECT_TRUE(transfer->wait(long_enough));
    EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
    EXPECT_TRUE(runtime_->free(transfer->address()));
  };
  const Engine& engine = *runtime_->device("linked").engine;
  send();
  const std::uint64_t first_bytes = engine.pinned_bytes();
  EXPECT_GE(first_bytes, segment_bytes);
  for (int count = 0; count < 8; ++count) {
    send();
  }
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return engine.pinned_bytes() > first_bytes; }));
}

TEST_F(FirstTransferTest, has_a_head_start) {
  start(make_system_storage());
  std::atomic<bool> rest_is_made = false;
  Engine& engine = *runtime_->device("linked").engine;
  engine.begin_head_start([&] { rest_is_made = true; });
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return rest_is_made.load(); }));
  EXPECT_EQ(engine.pinned_bytes(), 2 * segment_bytes);
}

// Whoever pins holds up the making of threads.
TEST_F(FirstTransferTest, has_its_first_threads_before_memory_is_pinned_for_it) {
  start(make_system_storage());
  const std::string path = folder_.file("data");
  const auto content = random_bytes(mebibyte, 35);
  write_whole(path, content);
  const std::size_t threads_before = running_threads();
  faults_->block(DeviceOperation::allocate_pinned);
  runtime_->device("linked").engine->begin_head_start([] {});
  EXPECT_TRUE(faults_->wait_until_held(1, long_enough));
  constexpr std::size_t workers = 4;
  EXPECT_EQ(running_threads(), threads_before + 1 + workers);
  const auto transfer = runtime_->submit({.path = path, .route = Route::pipelined});
  EXPECT_LE(transfer->decision().choice().plan.buffered_channels, workers);
  EXPECT_EQ(running_threads(), threads_before + 1 + workers) << "idle ones do";
  faults_->clear();
  EXPECT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::ok) << transfer->failure_message();
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
}

TEST_F(FirstTransferTest, does_without_a_head_start_that_fails) {
  const Failure none{.status = Status::out_of_host_memory, .operation = "allocate pinned memory"};
  faults_->fail(DeviceOperation::allocate_pinned, 1, none);
  start(make_system_storage());
  runtime_->device("linked").engine->begin_head_start([] {});
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return pinbuffer_calls() > 0; }));
  const std::string path = folder_.file("data");
  const auto content = random_bytes(3 * mebibyte, 34);
  write_whole(path, content);
  const auto transfer = runtime_->submit({.path = path, .route = Route::pipelined});
  EXPECT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::ok) << transfer->failure_message();
  EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
}

// Where copies are much faster than the drive, all writes that are under way end together.
TEST_F(FirstTransferTest, back_to_a_file_copies_ahead_before_it_waits_for_the_drive) {
  const auto plan = std::make_shared<FaultPlan>();
  plan->add({.point = FaultPoint::submit,
             .kind = FaultKind::delay,
             .times = 1000,
             .delay = std::chrono::milliseconds(5)});
  plan->add({.point = FaultPoint::reap, .kind = FaultKind::hold});
  start(make_faulty_storage(make_system_storage(), plan));
  const auto content = random_bytes(16 * mebibyte, 32);
  const DeviceAddress memory = runtime_->device("linked").allocate(content.size());
  std::memcpy(device_bytes(memory), content.data(), content.size());
  const std::string path = folder_.file("out");
  const auto transfer = runtime_->submit({.direction = Direction::recv,
                                          .path = path,
                                          .address = memory,
                                          .size = content.size(),
                                          .route = Route::pipelined});
  ASSERT_GT(transfer->decision().choice().plan.direct_io_depth, 0U);
  EXPECT_TRUE(hippogriff::testing::eventually([&] { return plan->seen(FaultPoint::reap) > 0; }));
  EXPECT_GT(faults_->calls(DeviceOperation::copy_to_host), 2U);
  plan->release();
  EXPECT_TRUE(transfer->wait(long_enough));
  EXPECT_EQ(transfer->status(), Status::ok) << transfer->failure_message();
  EXPECT_TRUE(read_whole(path) == content);
}

}  // namespace
}  // namespace hippogriff
