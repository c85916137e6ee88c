// Whose lanes run when transfers of one device overlap.
#include "transfer/engine.hpp"

#include "testing/faulty_storage.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

class EngineTest : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
};

TEST_F(EngineTest, what_was_planned_beside_others_gets_their_channels_when_they_end) {
  const std::string path = folder_.file("data");
  write_whole(path, random_bytes(48 * mebibyte, 9));
  const auto device = make_host_device(
      {.name = "slow", .memory_bytes = std::uint64_t{256} << 20, .link_bytes_per_second = 0.5e9});
  Runtime runtime(test_settings(), make_system_storage(), {device});
  const Submission submission{.path = path, .device = "slow", .route = Route::pipelined};
  const auto first = runtime.submit(submission);
  while (first->bytes_done() == 0 && !first->wait(std::chrono::milliseconds(1))) {
  }
  const auto second = runtime.submit(submission);
  ASSERT_TRUE(first->wait(long_enough));
  ASSERT_TRUE(second->wait(long_enough));
  EXPECT_FALSE(second->failed());
  EXPECT_GT(second->tally(Lane::buffered).channels,
            second->decision().choice().plan.buffered_channels);
  EXPECT_TRUE(runtime.free(first->address()));
  EXPECT_TRUE(runtime.free(second->address()));
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

// As many as the widest plan wants, and one more for each other transfer, read at a time.
TEST_F(EngineTest, sends_that_overlap_read_by_no_more_channels_than_the_link_needs) {
  const std::string path = folder_.file("data");
  const auto content = random_bytes(40 * mebibyte, 10);
  write_whole(path, content);
  Settings settings = test_settings();
  settings.threads_max = 20;
  settings.cores = 16;
  const auto plan = std::make_shared<FaultPlan>();
  Runtime runtime(settings, make_faulty_storage(make_system_storage(), plan), {linked_device()});
  plan->add({.point = FaultPoint::read, .kind = FaultKind::hold, .times = UINT64_MAX});
  const Submission submission{.path = path, .device = "linked", .route = Route::pipelined};
  std::vector<std::shared_ptr<Transfer>> transfers;
  std::size_t widest = 12;  // three fifths of the threads
  std::size_t wanted = 0;
  for (int count = 0; count < 4; ++count) {
    transfers.push_back(runtime.submit(submission));
    const std::size_t channels = transfers.back()->decision().choice().plan.buffered_channels;
    widest = std::max(widest, channels);
    wanted += channels;
  }
  ASSERT_GT(wanted, widest + 3) << "nothing would have to wait";
  const auto end = std::chrono::steady_clock::now() + long_enough;
  while (plan->struck() < widest && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_GE(plan->struck(), widest);
  EXPECT_LE(plan->struck(), widest + 3);
  plan->clear();
  for (const auto& transfer : transfers) {
    ASSERT_TRUE(transfer->wait(long_enough));
    ASSERT_FALSE(transfer->failed()) << transfer->failure_message();
    EXPECT_EQ(std::memcmp(device_bytes(transfer->address()), content.data(), content.size()), 0);
    EXPECT_TRUE(runtime.free(transfer->address()));
  }
  transfers.clear();
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

}  // namespace
}  // namespace hippogriff
