// Loads of arrays whose drive is stuck, and loads that are interrupted.
#include "array/loading.hpp"
#include "testing/array_fixture.hpp"
#include "testing/runtime_fixture.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace hippogriff {
namespace {

// An array whose files a runtime of its own loads, by reads that are held until the test says so.
class HeldLoad : public ::testing::Test {
 protected:
  ~HeldLoad() override {
    plan_->clear();
    EXPECT_TRUE(runtime_.shutdown(std::chrono::seconds(60)));
  }

  // What loading throws, with how long it took.
  std::pair<Failure, Clock::duration> load(std::chrono::milliseconds wait_limit,
                                           const std::function<bool()>& interrupted,
                                           ondemand::LoadKind kind = ondemand::LoadKind::all) {
    array_ =
        std::make_unique<ondemand::TestArray>(ondemand::TestArrayOptions{.size_bytes = 64 << 10,
                                                                         .cache_bytes = 64 << 10,
                                                                         .wait_limit = wait_limit,
                                                                         .device = device_});
    plan_->add({.point = FaultPoint::read, .kind = FaultKind::hold, .times = 1000});
    plan_->add({.point = FaultPoint::read_cached, .kind = FaultKind::hold, .times = 1000});
    plan_->add({.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = 1000});
    const auto begin = Clock::now();
    const Failure failure = failure_of(
        [&] { ondemand::load_at_opening(array_->array(), runtime_, kind, interrupted); });
    return {failure, Clock::now() - begin};
  }

  std::shared_ptr<FaultPlan> plan_ = std::make_shared<FaultPlan>();
  std::shared_ptr<Device> device_ = make_host_device({.memory_bytes = std::uint64_t{64} << 20});
  Runtime runtime_{test_settings(), make_faulty_storage(make_system_storage(), plan_), {device_}};
  std::unique_ptr<ondemand::TestArray> array_;
};

TEST_F(HeldLoad, by_a_drive_that_is_stuck_ends_and_keeps_the_memory_that_it_may_write_to) {
  const std::uint64_t free_before = device_->memory().free_bytes;
  const auto [failure, took] = load(std::chrono::milliseconds(200), nullptr);
  EXPECT_EQ(failure.status, Status::timed_out);
  EXPECT_LT(took, std::chrono::seconds(20)) << "held reads last a minute";
  array_.reset();
  EXPECT_LT(device_->memory().free_bytes, free_before);
}

TEST_F(HeldLoad, ends_when_it_is_interrupted_and_gives_the_memory_back) {
  const std::uint64_t free_before = device_->memory().free_bytes;
  int asked = 0;
  const auto [failure, took] = load(std::chrono::seconds(60), [&] {
    if (++asked == 2) {
      plan_->release();
    }
    return asked == 2;
  });
  EXPECT_EQ(failure.status, Status::cancelled);
  EXPECT_LT(took, std::chrono::seconds(20));
  array_.reset();
  EXPECT_EQ(device_->memory().free_bytes, free_before);
}

// Stripes are transfers of their own, each of which ends before anybody looks.
TEST_F(HeldLoad, of_many_stripes_ends_when_it_is_interrupted) {
  array_ = std::make_unique<ondemand::TestArray>(ondemand::TestArrayOptions{.size_bytes = 64 << 10,
                                                                            .cache_bytes = 64 << 10,
                                                                            .files = 2,
                                                                            .stripe_bytes = 512,
                                                                            .device = device_});
  plan_->add({.point = FaultPoint::read,
              .kind = FaultKind::delay,
              .times = 1000,
              .delay = std::chrono::milliseconds(2)});
  plan_->add({.point = FaultPoint::read_cached,
              .kind = FaultKind::delay,
              .times = 1000,
              .delay = std::chrono::milliseconds(2)});
  const Failure failure = failure_of([&] {
    ondemand::load_at_opening(
        array_->array(), runtime_, ondemand::LoadKind::all, [] { return true; });
  });
  EXPECT_EQ(failure.status, Status::cancelled);
}

TEST_F(HeldLoad, of_memory_ends_when_it_is_interrupted) {
  array_ = std::make_unique<ondemand::TestArray>(ondemand::TestArrayOptions{
      .size_bytes = 64 << 10, .cache_bytes = 64 << 10, .in_memory = true, .device = device_});
  const Failure failure = failure_of([&] {
    ondemand::load_at_opening(
        array_->array(), runtime_, ondemand::LoadKind::all, [] { return true; });
  });
  EXPECT_EQ(failure.status, Status::cancelled);
  EXPECT_FALSE(array_->array().keeps_memory());
}

// What is not asked for is left out when it fails, but not where it may be written to later.
TEST_F(HeldLoad, that_nobody_asked_for_fails_too_where_a_read_does_not_end) {
  const auto [failure, took] =
      load(std::chrono::milliseconds(200), nullptr, ondemand::LoadKind::automatic);
  EXPECT_EQ(failure.status, Status::timed_out);
  EXPECT_TRUE(array_->array().keeps_memory());
}

}  // namespace
}  // namespace hippogriff
