// Transfers that find all of a small pinbuffer lent get on while those that have it are under way.
#include "testing/eventually.hpp"
#include "testing/faulty_runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace hippogriff {
namespace {

using hippogriff::testing::eventually;

// One transfer alone takes all of it, or all but two halves; a slot for each is just enough.
constexpr std::uint64_t pinbuffer_bytes = 4 * Pinbuffer::slot_bytes;
constexpr std::uint64_t lent_bytes = 32 * mebibyte;
constexpr std::size_t later_count = 3;
// Of each request: the first transfer alone takes 0.8 s at least.
constexpr std::chrono::milliseconds drive_latency{100};

Settings small_pinbuffer() {
  Settings settings = test_settings();
  settings.pinbuffer_bytes = pinbuffer_bytes;
  return settings;
}

class LentSlotsTest : public ::testing::Test {
 protected:
  LentSlotsTest() { write_whole(input_, content_); }

  void slow_drive(FaultPoint point) {
    on_.plan->add({.point = FaultPoint::residency,
                   .kind = FaultKind::residency_wrong,
                   .times = UINT64_MAX,
                   .fraction = 0});
    on_.plan->add(
        {.point = point, .kind = FaultKind::delay, .times = UINT64_MAX, .delay = drive_latency});
  }

  // Before the first transfer begins: those of the others should take no time meanwhile.
  void make_memory(Direction direction) {
    for (std::size_t index = 0; index <= later_count; ++index) {
      memory_.push_back(on_.state().allocate(lent_bytes));
      if (direction == Direction::send) {
        std::memset(device_bytes(memory_.back()), 0x5A, lent_bytes);
      } else {
        std::memcpy(device_bytes(memory_.back()), content_.data(), lent_bytes);
      }
    }
  }

  void submit(Direction direction) {
    const std::size_t index = transfers_.size();
    transfers_.push_back(
        on_.runtime->submit({.direction = direction,
                             .path = direction == Direction::send ? input_ : output(index),
                             .address = memory_[index],
                             .size = lent_bytes,
                             .route = Route::pipelined}));
    EXPECT_GT(transfers_.back()->decision().choice().plan.direct_io_depth, 0U);
  }

  // The first has all slots, the others few or none. All move something while the first goes on.
  void expect_that_all_get_on(Direction direction) {
    make_memory(direction);
    submit(direction);
    ASSERT_TRUE(eventually([&] { return on_.state().engine->pinned_bytes() == pinbuffer_bytes; }));
    for (std::size_t later = 0; later < later_count; ++later) {
      submit(direction);
    }
    EXPECT_TRUE(eventually([&] {
      return std::all_of(transfers_.begin(), transfers_.end(), [](const auto& transfer) {
        return transfer->bytes_done() > 0;
      });
    }));
    EXPECT_LT(transfers_.front()->bytes_done(), lent_bytes) << "others had to wait for its end";
    const std::uint64_t seen_before = transfers_.front()->bytes_done();
    EXPECT_TRUE(eventually([&] { return transfers_.front()->bytes_done() > seen_before; }));
    on_.stop_faults();
    for (std::size_t index = 0; index < transfers_.size(); ++index) {
      check(direction, index);
    }
    transfers_.clear();
  }

 private:
  [[nodiscard]] std::string output(std::size_t index) const {
    return folder_.file("out" + std::to_string(index));
  }

  void check(Direction direction, std::size_t index) {
    Transfer& transfer = *transfers_[index];
    EXPECT_TRUE(transfer.wait(no_hang));
    EXPECT_EQ(transfer.status(), Status::ok) << transfer.failure_message();
    if (direction == Direction::send) {
      expect_all_but_missing(transfer, device_bytes(transfer.address()), content_.data());
    } else {
      EXPECT_TRUE(read_whole(output(index)) == content_);
    }
    EXPECT_LE(transfer.host_memory.most_bytes(), pinbuffer_bytes);
    EXPECT_EQ(transfer.host_memory.left_bytes(), transfer.host_memory.bytes())
        << "what was given back counts no more";
    EXPECT_TRUE(on_.runtime->free(transfer.address()));
  }

  const TemporaryFolder folder_;
  const std::string input_ = folder_.file("data");
  const std::vector<std::byte> content_ = random_bytes(lent_bytes, 77);
  FaultyRuntime on_{small_pinbuffer()};
  std::vector<DeviceAddress> memory_;
  std::vector<std::shared_ptr<Transfer>> transfers_;
};

TEST_F(LentSlotsTest, cold_sends_begin_while_the_one_that_had_all_goes_on) {
  slow_drive(FaultPoint::queued_read);
  expect_that_all_get_on(Direction::send);
}

TEST_F(LentSlotsTest, receives_begin_while_the_one_that_had_all_goes_on) {
  slow_drive(FaultPoint::queued_write);
  expect_that_all_get_on(Direction::recv);
}

}  // namespace
}  // namespace hippogriff
