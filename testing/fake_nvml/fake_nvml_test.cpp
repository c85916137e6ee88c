// What is asked of NVML, and what comes of it: memory that programs outside use is not promised.
#include "base/error.hpp"
#include "device/nvml.hpp"
#include "node/outside.hpp"
#include "testing/node_segment.hpp"
#include "transfer/node_share.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

namespace hippogriff {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;

// One GPU of 1000 bytes, as the file tells it now.
class FakeNvml : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FAKE_NVML_FILE", path_.c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
    tell(0);
  }

  void TearDown() override {
    static_cast<void>(::unlink(path_.c_str()));
    for (int times = 1; times <= 20; ++times) {
      static_cast<void>(::unlink((path_ + "." + std::to_string(times)).c_str()));
    }
  }

  void tell(std::uint64_t used, const std::string& more = "") {
    const std::string fresh = path_ + ".new";
    std::ofstream(fresh) << "gpu GPU-one 1000 " << used << " 37\n" << more;
    ASSERT_EQ(std::rename(fresh.c_str(), path_.c_str()), 0);
  }

  // What it tells once it was asked so often what the GPU has.
  void tell_after(int times, std::uint64_t used, const std::string& more) const {
    std::ofstream(path_ + "." + std::to_string(times)) << "gpu GPU-one 1000 " << used << " 37\n"
                                                       << more;
  }

  TemporarySegment place;
  std::string path_ = "/tmp/hippogriff-fake-nvml-" + std::to_string(::getpid());
};

TEST_F(FakeNvml, lists_gpus_with_what_they_have) {
  tell(400, "gpu GPU-two 2000 0 0\n");
  const auto gpus = list_gpus();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].uuid, "GPU-one");
  EXPECT_EQ(gpus[0].model, "Fake GPU");
  EXPECT_EQ(gpus[0].used_bytes, 400U);
  EXPECT_EQ(gpus[0].utilization_pct, 37U);
  EXPECT_EQ(gpus[1].index, 1);
  EXPECT_EQ(find_gpu("GPU-two")->memory_bytes, 2000U);
  EXPECT_FALSE(find_gpu("GPU-three"));
  EXPECT_EQ(nvml_obstacle(), "");
}

TEST_F(FakeNvml, lists_more_processes_than_it_asked_for_at_first) {
  std::string lines;
  for (int pid = 1; pid <= 300; ++pid) {
    lines += "process GPU-one " + std::to_string(pid) + " 2\n";
  }
  tell(600, lines);
  const auto processes = gpu_processes("GPU-one");
  ASSERT_EQ(processes.size(), 300U);
  EXPECT_EQ(processes.back().pid, 300U);
  EXPECT_TRUE(gpu_processes("GPU-two").empty());
}

TEST_F(FakeNvml, memory_used_outside_is_not_promised) {
  tell(400, "process GPU-one 1 400\n");
  NodeShare share({.address = place.path(), .command = {}});
  share.account(NodeShare::identify("GPU-one"));
  EXPECT_EQ(status_of([&] { share.reserve("GPU-one", {.size_bytes = 601}); }), Status::busy);
  share.reserve("GPU-one", {.size_bytes = 600});
}

TEST_F(FakeNvml, what_holders_use_is_counted_once) {
  NodeShare share({.address = place.path(), .command = {}});
  share.account(NodeShare::identify("GPU-one"));
  share.reserve("GPU-one", {.size_bytes = 500});
  tell(450, "process GPU-one " + std::to_string(::getpid()) + " 450\n");
  share.look_outside(std::chrono::milliseconds(0));
  EXPECT_EQ(share.node().view().devices.at(0).outside_bytes, 0U);
  tell(750, "process GPU-one " + std::to_string(::getpid()) + " 450\nprocess GPU-one 1 300\n");
  share.look_outside(std::chrono::milliseconds(0));
  EXPECT_EQ(share.node().view().devices.at(0).outside_bytes, 300U);
}

// Told between what the GPU has and what its processes have.
TEST_F(FakeNvml, what_is_allocated_while_one_looks_hides_nothing_that_is_used_outside) {
  NodeShare share({.address = place.path(), .command = {}});
  share.account(NodeShare::identify("GPU-one"));
  share.reserve("GPU-one", {.size_bytes = 600});
  const auto holding = [](int bytes) {
    return "process GPU-one " + std::to_string(::getpid()) + " " + std::to_string(bytes) + "\n";
  };
  const auto outside = [&] {
    share.look_outside(std::chrono::milliseconds(0));
    return share.node().view().devices.at(0).outside_bytes;
  };
  tell(150, holding(50));
  tell_after(1, 600, holding(500));
  EXPECT_EQ(outside(), 100U) << "allocated";
  tell_after(1, 150, holding(50));
  EXPECT_EQ(outside(), 100U) << "freed";
  for (int times = 1; times <= 20; ++times) {
    tell_after(times, times % 2 == 0 ? 150 : 600, holding(times % 2 == 0 ? 50 : 500));
  }
  EXPECT_EQ(outside(), 100U) << "it never rests: as before";
}

TEST_F(FakeNvml, what_is_about_to_be_allocated_hides_nothing_that_is_used_outside) {
  NodeShare share({.address = place.path(), .command = {}});
  node::Account& account = share.account(NodeShare::identify("GPU-one"));
  share.reserve("GPU-one", {.size_bytes = 600});
  ASSERT_TRUE(account.take(500));
  const std::string pid = std::to_string(::getpid());
  tell(150, "process GPU-one " + pid + " 50\nprocess GPU-one 1 100\n");
  share.look_outside(std::chrono::milliseconds(0));
  EXPECT_EQ(share.node().view().devices.at(0).outside_bytes, 100U) << "not there yet";
  tell(600, "process GPU-one 1 100\n");
  share.look_outside(std::chrono::milliseconds(0));
  EXPECT_EQ(share.node().view().devices.at(0).outside_bytes, 100U) << "unknown to NVML, but told";
}

TEST_F(FakeNvml, contexts_of_those_that_wait_for_their_first_use_are_kept_for_them) {
  node::Node leading(place.options());
  const std::uint32_t device = leading.add_device("GPU-one", 1000);
  leading.defer({.device = device, .size_bytes = 600});
  leading.defer({.device = leading.add_device("GPU-two", 1000), .size_bytes = 600});
  node::Node waiting(place.options());
  waiting.defer({.device = waiting.add_device("GPU-one", 1000), .size_bytes = 300});
  node::NodeOptions options = place.options();
  options.leader = node::Leader::parse(leading.leader());
  int ready[2] = {-1, -1};
  ASSERT_EQ(::pipe(ready), 0);
  Child command([&] {
    const node::Node follower(options);
    const bool told = ::write(ready[1], "1", 1) == 1;
    ::pause();
    return told ? 0 : 1;
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  tell(170, "process GPU-one " + std::to_string(command.pid()) + " 50\nprocess GPU-one 1 120\n");
  node::look_outside(waiting, 0, "GPU-one");
  const node::NodeView view = waiting.view();
  EXPECT_EQ(view.devices.at(0).outside_bytes, 120U);
  EXPECT_EQ(view.devices.at(0).context_bytes, 50U);
  ASSERT_EQ(view.reservations.size(), 3U);
  EXPECT_EQ(view.reservations[0].record.kept_bytes, 50U) << "seen";
  EXPECT_EQ(view.reservations[1].record.kept_bytes, 0U) << "of the other GPU";
  EXPECT_EQ(view.reservations[2].record.kept_bytes, 50U) << "to come";
  EXPECT_EQ(status_of([&] { waiting.reserve({.device = 0, .size_bytes = 781}); }), Status::busy);
  waiting.release(waiting.reserve({.device = 0, .size_bytes = 780}));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(FakeNvml, who_waits_gets_what_others_outside_give_back) {
  tell(400);
  NodeShare share({.address = place.path(), .command = {}});
  share.account(NodeShare::identify("GPU-one"));
  Child outside([&] {
    ::usleep(300'000);
    tell(0);
    return 0;
  });
  share.reserve("GPU-one", {.size_bytes = 1000, .timeout = std::chrono::seconds(20)});
  EXPECT_EQ(outside.wait(), 0);
}

}  // namespace
}  // namespace hippogriff
