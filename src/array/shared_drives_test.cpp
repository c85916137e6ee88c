// Drives that processes share: who is limited, how controllers keep to it, and when it ends.
#include "array/shared_drives.hpp"

#include "node/node.hpp"
#include "testing/array_fixture.hpp"
#include "testing/node_segment.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::TemporarySegment;
using node::SeenArray;

constexpr std::int64_t millisecond_ns = 1'000'000;

// One process's drives, and one other that wants four requests.
class DriveOfTwo : public ::testing::Test {
 protected:
  void turn(bool other_is_busy) {
    now_ns_ += SharedDrives::look_interval_ns;
    answers_ += other_is_busy ? 100 : 0;
    const SeenArray seen{.client = 1,
                         .pid = 1,
                         .shown = {.drive = "vda", .line_bytes = 4096},
                         .counts = {.in_flight = 4, .drive_answers = answers_},
                         .counted_ns = now_ns_};
    drives_.look(now_ns_, [&] { return std::vector<SeenArray>{seen}; });
  }

  // So that the machine's own drives count for nothing.
  SharedDrives drives_{4, [](const std::string&) { return drive_share_max; }};
  std::int64_t now_ns_ = 0;
  std::uint64_t answers_ = 0;
};

TEST(SharedDrives, leave_a_drive_what_it_is_as_fast_with) {
  SharedDrives drives(
      4, [](const std::string& name) { return std::uint64_t{name == "vda" ? 128U : 2U}; });
  ThreadDrive thread{.shared = &drives.drive("vda"), .in_flight = 31};
  EXPECT_EQ(&drives.drive("vda"), thread.shared);
  EXPECT_TRUE(thread.has_room(0));
  EXPECT_TRUE(thread.has_room(10'000)) << "what is copied takes nothing of it";
  thread.in_flight = 32;
  EXPECT_FALSE(thread.has_room(0));
  thread.shared->each_thread = 40;  // of what others leave
  thread.in_flight = 20;
  EXPECT_TRUE(thread.has_room(19));
  EXPECT_FALSE(thread.has_room(20)) << "what is copied may come to ask for that";
  ThreadDrive slow{.shared = &drives.drive("slow")};
  EXPECT_TRUE(slow.has_room(0)) << "each thread gets on";
}

TEST(SharedDrives, know_nothing_of_what_is_no_drive) {
  EXPECT_EQ(SharedDrives::requests_wanted_by("no such drive"), drive_share_max);
  EXPECT_EQ(SharedDrives::requests_wanted_by(""), drive_share_max);
}

TEST_F(DriveOfTwo, is_limited_for_each_thread_while_another_process_is_busy) {
  const SharedDrive& drive = drives_.drive("vda");
  const SharedDrive& other_drive = drives_.drive("vdb");
  turn(true);
  turn(true);
  EXPECT_EQ(drive.each_thread, drive_share_min / 4);
  EXPECT_EQ(drive.share, drive_share_min);
  EXPECT_GE(other_drive.each_thread, drive_share_max / 4);
  turn(false);
  turn(false);
  turn(false);
  turn(false);
  EXPECT_GE(drive.each_thread, drive_share_max / 4);
}

TEST_F(DriveOfTwo, grows_while_requests_are_quick) {
  SharedDrive& drive = drives_.drive("vda");
  drive.note_mean(80'000);
  drive.note_mean(200'000);
  EXPECT_EQ(drive.least_ns, 80'000U);
  turn(true);
  for (int look = 0; look < 3; ++look) {  // which everybody keeps calm
    drive.answers += 50'000;
    drive.answered_bytes += 50'000 * 4096ULL;
    turn(true);
    EXPECT_EQ(drive.each_thread, 2U);
  }
  drive.answers += 50'000;  // 500,000 a second: 80 requests take 160 us
  drive.answered_bytes += 50'000 * 4096ULL;
  turn(true);
  EXPECT_EQ(drive.each_thread, 19U);
}

TEST_F(DriveOfTwo, who_comes_and_goes_holds_others_back_once) {
  SharedDrive& drive = drives_.drive("vda");
  drive.note_mean(80'000);
  const auto answer = [&] {
    drive.answers += 50'000;
    drive.answered_bytes += 50'000 * 4096ULL;
  };
  for (int look = 0; look < 5; ++look) {
    answer();
    turn(true);
  }
  ASSERT_GT(drive.each_thread, drive_share_min / 4);
  for (int look = 0; look < 5; ++look) {
    answer();
    turn(false);
  }
  answer();
  turn(true);
  EXPECT_GT(drive.each_thread, drive_share_min / 4);
}

TEST_F(DriveOfTwo, is_looked_at_now_and_then_only) {
  int looks = 0;
  for (std::int64_t now_ns = 100 * millisecond_ns; now_ns < 400 * millisecond_ns;
       now_ns += 10 * millisecond_ns) {
    drives_.look(now_ns, [&] {
      ++looks;
      return std::vector<SeenArray>{};
    });
  }
  EXPECT_EQ(looks, 3);
}

// The array has whole lines to write, which no page cache answers.
TEST(Controller, has_no_more_at_a_drive_than_its_share_and_goes_on_with_the_rest) {
  constexpr std::uint64_t in_line = 512 / sizeof(std::uint64_t);
  TestArray array({.size_bytes = 512 << 10, .cache_bytes = 2 << 20});
  SharedDrive* const drive = array.drive();
  if (drive == nullptr) {
    GTEST_SKIP() << "the folder is on no drive";
  }
  drive->each_thread = 1;
  const auto view = array.view<std::uint64_t>();
  for (std::uint64_t line = 0; line < 1024; line += 2) {  // none behind another: a request each
    for (std::uint64_t i = 0; i < in_line; ++i) {
      ASSERT_EQ(view.write(line * in_line + i, i), NvmeStatus::success);
    }
  }
  ASSERT_EQ(array.plan().seen(FaultPoint::queued_write), 0U) << "the cache has room for all";
  array.plan().add(
      {.point = FaultPoint::queued_write, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::jthread flush([&] { array.array().flush(); });
  const auto sent = [&] { return array.plan().seen(FaultPoint::queued_write); };
  EXPECT_TRUE(eventually([&] { return sent() == 2; })) << "two threads: " << sent();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(sent(), 2U);
  array.plan().release();
  flush.join();
  EXPECT_EQ(sent(), 512U);
  EXPECT_EQ(drive->answers, 512U);
  EXPECT_EQ(drive->answered_bytes, 512 * 512U);
}

// Shows an array that reads from the drive, until it is killed, or told to stop.
int read_from(const std::string& drive,
              const node::NodeOptions& options,
              const std::atomic<bool>& stop) {
  const node::Node theirs(options);
  const auto notice = theirs.notice_array();
  notice->show({.device = 1, .drive = drive, .line_bytes = 512});
  for (std::uint64_t answers = 1; !stop; ++answers) {
    notice->count({.in_flight = 4, .drive_answers = answers});
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 0;
}

bool is_limited(const SharedDrive& drive) {
  return drive.each_thread <= drive_share_min;
}

TEST(Controller, shares_its_drive_while_another_process_reads_there) {
  const TemporarySegment place;
  const node::Node mine(place.options());
  TestArray array({.notice = mine.notice_array()});
  SharedDrive* const drive = array.drive();
  if (drive == nullptr) {
    GTEST_SKIP() << "the folder is on no drive";
  }
  const std::string name = drive_of(array.array().backing());
  node::Node watcher(place.options());
  const auto shown_limit = [&] {
    for (const SeenArray& seen : watcher.view().arrays) {
      if (seen.shown.size_bytes != 0) {  // not the other's
        return seen.counts.drive_limit;
      }
    }
    return std::uint64_t{1} << 32U;
  };
  EXPECT_FALSE(is_limited(*drive));
  for (int round = 0; round < 2; ++round) {
    std::atomic<bool> stop{false};
    std::jthread other([&] { read_from(name, place.options(), stop); });
    EXPECT_TRUE(eventually([&] { return is_limited(*drive); }));
    EXPECT_TRUE(eventually([&] { return shown_limit() == drive_share_min; }));
    stop = true;
    other.join();
    EXPECT_TRUE(eventually([&] { return !is_limited(*drive); })) << "it has ended";
    EXPECT_TRUE(eventually([&] { return shown_limit() == 0; })) << "others see that it has none";
  }
}

TEST(Controller, has_its_drive_back_from_a_process_that_was_killed) {
  const TemporarySegment place;
  std::string name;
  {
    TestArray array(TestArrayOptions{});
    name = drive_of(array.array().backing());
  }
  if (name.empty()) {
    GTEST_SKIP() << "the folder is on no drive";
  }
  Child child([&] { return read_from(name, place.options(), std::atomic<bool>{false}); });
  const node::Node mine(place.options());
  TestArray array({.notice = mine.notice_array()});
  EXPECT_TRUE(eventually([&] { return is_limited(*array.drive()); }));
  child.send(SIGKILL);
  EXPECT_EQ(child.wait(), -SIGKILL);
  EXPECT_TRUE(eventually([&] { return !is_limited(*array.drive()); }));
}

// Two arrays whose controllers see each other, one drive.
TEST(Controller, keeps_to_its_share_of_what_another_controller_uses) {
  const TemporarySegment place;
  const node::Node first_node(place.options());
  const node::Node second_node(place.options());
  TestArray first({.size_bytes = 64 << 10, .notice = first_node.notice_array()});
  TestArray second({.size_bytes = 64 << 10, .notice = second_node.notice_array()});
  if (first.drive() == nullptr) {
    GTEST_SKIP() << "the folder is on no drive";
  }
  std::atomic<bool> stop{false};
  const auto write = [&](TestArray& array) {
    const auto view = array.view<std::uint64_t>();
    for (std::uint64_t i = 0; !stop; i = (i + 64) % view.size()) {
      ASSERT_EQ(view.write(i, i), NvmeStatus::success);
    }
  };
  {
    std::jthread one([&] { write(first); });
    std::jthread other([&] { write(second); });
    EXPECT_TRUE(eventually(
        [&] { return first.drive()->each_thread < 1000 && second.drive()->each_thread < 1000; }));
    stop = true;
  }
  EXPECT_TRUE(eventually([&] {
    return first.drive()->each_thread >= 1000 && second.drive()->each_thread >= 1000;
  })) << "both are idle";
  EXPECT_GT(first.drive()->least_ns, 0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
