// Segments that somebody removes while they are used: what the living hold is promised to nobody.
#include "node/legacy.hpp"

#include "base/error.hpp"
#include "node/life.hpp"
#include "node/node.hpp"
#include "node/segment.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Answers;
using hippogriff::testing::AtStep;
using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;

class LegacyTest : public ::testing::Test {
 protected:
  // Reserves, hands over and goes on as a program that knows nothing of all this.
  Child command(std::uint64_t size_bytes, const char* program = "exec sleep 60") {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    Child child([&] {
      Node node(place.options());
      node.add_device("gpu", 100);
      node.reserve(request(size_bytes));
      const std::string words = node.leader();
      node.hand_over();
      static_cast<void>(::write(pipe[1], words.c_str(), words.size()));
      ::execl("/bin/sh", "sh", "-c", program, nullptr);
      return 1;
    });
    ::close(pipe[1]);
    std::array<char, 64> text{};
    // Until exec has closed the pipe: only then is it the other program.
    std::string words;
    for (ssize_t got = 0; (got = ::read(pipe[0], text.data(), text.size())) > 0;) {
      words.append(text.data(), static_cast<std::size_t>(got));
    }
    ::close(pipe[0]);
    leader = words;
    return child;
  }

  void remove_books() { ASSERT_EQ(::unlink(place.path().c_str()), 0); }

  std::unique_ptr<Node> member() {
    NodeOptions options = place.options();
    options.leader = Leader::parse(leader);
    auto made = std::make_unique<Node>(options);
    made->add_device("gpu", 100);
    return made;
  }

  std::unique_ptr<Node> other() {
    auto made = std::make_unique<Node>(place.options());
    made->add_device("gpu", 100);
    return made;
  }

  bool refused_while_removing(std::uint64_t seed);

  TemporarySegment place;
  std::string leader;
};

TEST_F(LegacyTest, what_a_command_holds_is_in_the_books_that_replace_the_removed_ones) {
  Child running = command(60);
  remove_books();
  const auto late = other();
  EXPECT_EQ(held(*late), 60U);
  EXPECT_EQ(status_of([&] { late->reserve(request(41)); }), Status::busy);
  late->release(late->reserve(request(40)));
  running.send(SIGKILL);
  running.wait();
  EXPECT_EQ(held(*late), 0U) << "it is dead, and there is nobody else who has its descriptor";
  late->reserve(request(100));
}

TEST_F(LegacyTest, a_command_lives_in_them_until_its_last_process_has_ended) {
  // The first process ends at once, the other goes on with what it inherited.
  const std::string pid_file = place.path() + ".pid";
  Child running = command(60, ("sleep 60 & echo $! >'" + pid_file + "'").c_str());
  running.wait();
  remove_books();
  const auto late = other();
  EXPECT_EQ(held(*late), 60U);
  int pid = 0;
  std::ifstream(pid_file) >> pid;
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return held(*late) == 0; }));
  static_cast<void>(::unlink(pid_file.c_str()));
}

TEST_F(LegacyTest, a_command_is_carried_over_however_often_they_are_removed) {
  Child running = command(60);
  for (int round = 0; round < 5; ++round) {
    remove_books();
    EXPECT_EQ(held(*other()), 60U) << "round " << round << ": this one leaves before the next";
  }
  const auto stays = other();
  stays->reserve(request(10));
  for (int round = 0; round < 5; ++round) {
    remove_books();
    EXPECT_EQ(held(*other()), 70U) << "round " << round;
  }
  running.send(SIGKILL);
  running.wait();
  EXPECT_EQ(held(*stays), 10U);
}

TEST_F(LegacyTest, several_commands_and_who_waits_keep_their_order) {
  Child first = command(50);
  const Child second = command(40);
  Node waiter(place.options());
  waiter.add_device("gpu", 100);
  std::thread thread([&] { waiter.release(waiter.reserve(request(50, long_wait))); });
  ASSERT_TRUE(eventually([&] { return waiting(waiter) == 1; }));
  remove_books();
  const auto late = other();
  EXPECT_EQ(held(*late), 90U);
  EXPECT_TRUE(eventually([&] { return waiting(*late) == 1; }));
  first.send(SIGKILL);
  first.wait();
  thread.join();
  EXPECT_TRUE(eventually([&] { return held(*late) == 40; }));
}

TEST_F(LegacyTest, processes_of_a_command_share_its_memory_as_before) {
  const Child running = command(60);
  const auto old = member();
  ASSERT_TRUE(old->take(0, 25));
  remove_books();
  const auto young = member();
  EXPECT_TRUE(young->follows()) << "the words in its environment are still right";
  EXPECT_EQ(young->group_used_bytes(0), 25U);
  EXPECT_FALSE(young->take(0, 36));
  EXPECT_TRUE(young->take(0, 30));
  EXPECT_FALSE(old->take(0, 6)) << "who had the removed ones goes on in the present ones";
  EXPECT_TRUE(old->take(0, 5));
  old->give(0, 30);
  EXPECT_EQ(young->group_used_bytes(0), 30U);
  EXPECT_TRUE(young->take(0, 30));
}

TEST_F(LegacyTest, what_a_process_of_a_command_had_goes_back_when_it_ends_before_it_looks) {
  const Child running = command(60);
  auto old = member();
  auto dead = member();
  ASSERT_TRUE(old->take(0, 25));
  ASSERT_TRUE(dead->take(0, 35));
  dead.reset();
  remove_books();
  const auto young = member();
  EXPECT_EQ(young->group_used_bytes(0), 25U) << "one was dead before";
  EXPECT_TRUE(young->take(0, 35));
  old.reset();
  EXPECT_TRUE(young->take(0, 25));
}

TEST_F(LegacyTest, who_takes_after_the_removal_makes_the_books_anew) {
  const Child running = command(60);
  const auto old = member();
  ASSERT_TRUE(old->take(0, 25));
  remove_books();
  EXPECT_TRUE(old->take(0, 35));
  EXPECT_FALSE(old->take(0, 1));
  const auto late = other();
  EXPECT_EQ(held(*late), 60U);
  EXPECT_EQ(member()->group_used_bytes(0), 60U);
}

TEST_F(LegacyTest, a_command_grows_in_the_books_that_count) {
  const Child running = command(60);
  const auto old = member();
  remove_books();
  const auto late = other();
  const std::uint64_t theirs = late->reserve(request(30));
  EXPECT_EQ(status_of([&] { old->grow_group(0, 80, no_wait); }), Status::busy);
  late->release(theirs);
  old->grow_group(0, 80, no_wait);
  EXPECT_EQ(held(*late), 80U);
  EXPECT_TRUE(old->take(0, 80));
}

TEST_F(LegacyTest, a_client_keeps_its_slot_and_what_it_holds_counts_once) {
  Node idle(place.options());
  idle.add_device("gpu", 100);
  const std::uint64_t ours = idle.reserve(request(60));
  idle.show_used(0, 20);
  const std::uint32_t slot = idle.view().reservations.at(0).record.client;
  remove_books();
  const auto late = other();
  EXPECT_EQ(held(*late), 60U) << "it has not looked";
  EXPECT_EQ(status_of([&] { late->reserve(request(41)); }), Status::busy);
  const NodeView view = idle.view();
  ASSERT_EQ(view.reservations.size(), 1U);
  EXPECT_EQ(view.reservations.at(0).record.client, slot);
  for (const NodeView::Client& client : view.clients) {
    EXPECT_EQ(client.used_bytes.at(0), client.client == slot ? 20U : 0U);
  }
  idle.shrink(ours, 50);
  EXPECT_EQ(held(*late), 50U);
  idle.release(ours);
  EXPECT_EQ(held(*late), 0U);
}

TEST_F(LegacyTest, who_ends_without_looking_leaves_nothing) {
  Child idle([&] {
    Node node(place.options());
    node.add_device("gpu", 100);
    node.reserve(request(60));
    ::raise(SIGSTOP);
    return 0;
  });
  idle.wait_stopped();
  remove_books();
  const auto late = other();
  EXPECT_EQ(held(*late), 60U);
  idle.send(SIGKILL);
  idle.wait();
  EXPECT_EQ(held(*late), 0U);
}

TEST_F(LegacyTest, the_policy_stays) {
  const auto first = other();
  first->set_policy(Policy::priority_fifo, {.grants_max = 3, .wait_ns_max = 4});
  remove_books();
  const auto late = other();
  EXPECT_EQ(late->view().policy, Policy::priority_fifo);
  EXPECT_EQ(late->view().bound.grants_max, 3U);
}

TEST_F(LegacyTest, books_of_a_damaged_header_are_replaced_with_what_commands_hold) {
  const Child running = command(60);
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::uint64_t garbage = 0x3f3f3f3f;
  ASSERT_EQ(::pwrite(fd, &garbage, sizeof(garbage), offsetof(SegmentHeader, segment_bytes)),
            static_cast<ssize_t>(sizeof(garbage)));
  ::close(fd);
  EXPECT_EQ(held(*other()), 60U);
}

TEST_F(LegacyTest, removed_books_of_another_version_are_told_of_while_they_are_in_use) {
  Child running = command(60);
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  SegmentHeader header;
  ASSERT_EQ(::pread(fd, &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
  header.version = segment_version - 1;
  header.checksum = header_checksum(header);
  ASSERT_EQ(::pwrite(fd, &header, sizeof(header), 0), static_cast<ssize_t>(sizeof(header)));
  ::close(fd);
  remove_books();
  EXPECT_EQ(status_of([&] { other(); }), Status::unsupported);
  running.send(SIGKILL);
  running.wait();
  EXPECT_EQ(status_of([&] { other(); }), Status::ok);
}

TEST_F(LegacyTest, removed_books_of_the_same_name_in_another_containers_tmpfs_are_not_ours) {
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  const Child container([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", "/dev/shm", "tmpfs", 0, nullptr) != 0) {
      return 1;
    }
    Node node(place.options());
    node.add_device("gpu", 100);
    node.reserve(request(60));
    remove_books();
    static_cast<void>(::write(pipe[1], "1", 1));
    ::pause();
    return 0;
  });
  ::close(pipe[1]);
  char answer = 0;
  const ssize_t got = ::read(pipe[0], &answer, 1);
  ::close(pipe[0]);
  if (got != 1) {
    GTEST_SKIP() << "no mount namespaces here";
  }
  const auto late = other();
  EXPECT_EQ(held(*late), 0U);
  late->reserve(request(100));
}

TEST_F(LegacyTest, whatever_stands_in_removed_books_is_read_without_harm) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const Child running = command(60);
  const auto member_of_it = member();
  member_of_it->take(0, 10);
  for (int round = 0; round < 200; ++round) {
    const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    for (int count = 0; count < 40; ++count) {
      const auto byte = static_cast<char>(random());
      const auto at = static_cast<off_t>(random() % (random() % 2 == 0 ? 32'768 : 64'000));
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    }
    ::close(fd);
    static_cast<void>(::unlink(place.path().c_str()));
    EXPECT_EQ(status_of([&] { static_cast<void>(other()->view()); }), Status::ok);
  }
}

// /proc/locks is longer than a page here, and is read while others come and go.
TEST_F(LegacyTest, a_lock_is_seen_whatever_other_locks_there_are) {
  std::vector<std::unique_ptr<Node>> stay;
  for (int count = 0; count < 100; ++count) {
    stay.push_back(std::make_unique<Node>(place.options()));
  }
  struct stat facts{};
  ASSERT_EQ(::stat(place.path().c_str(), &facts), 0);
  const std::array<TemporarySegment, 2> places;  // who comes and goes is killed
  std::vector<Child> come_and_go;
  for (const TemporarySegment& elsewhere : places) {
    come_and_go.emplace_back([&elsewhere] {
      std::vector<std::unique_ptr<Node>> others(20);
      for (std::size_t turn = 0;; ++turn) {
        others.at(turn % others.size()) = std::make_unique<Node>(elsewhere.options());
      }
      return 0;
    });
  }
  for (std::uint32_t look = 0; look < 5000; ++look) {
    ASSERT_EQ(has_slot_lock([&](const SlotLock& lock) {
                return lock.inode == facts.st_ino && lock.client == look % stay.size();
              }),
              true)
        << "look " << look;
  }
}

TEST_F(LegacyTest, an_operation_that_began_before_the_removal_promises_nothing_twice) {
  std::unique_ptr<Node> late;
  AtStep removal{.place = "before lock", .act = [&] {
                   remove_books();
                   late = other();
                   late->reserve(request(60));
                 }};
  NodeOptions options = place.options();
  removal.done = true;
  options.steps = removal.steps();
  Node node(options);
  node.add_device("gpu", 100);
  removal.done = false;
  EXPECT_EQ(status_of([&] { node.reserve(request(60)); }), Status::busy);
  EXPECT_EQ(held(*late), 60U);
}

TEST_F(LegacyTest, what_is_being_committed_while_they_are_removed_is_carried_over) {
  const Answers answers;
  AtStep removal{.place = "before commit", .act = [&] {
                   static_cast<void>(::unlink(place.path().c_str()));
                   static_cast<void>(::write(answers.to(), "r", 1));
                   ::usleep(100'000);
                 }};
  const Child slow([&] {
    removal.done = true;
    NodeOptions options = place.options();
    options.steps = removal.steps();
    Node node(options);
    node.add_device("gpu", 100);
    removal.done = false;
    node.reserve(request(60));
    ::pause();
    return 0;
  });
  ASSERT_EQ(answers.next(1), "r");
  EXPECT_EQ(held(*other()), 60U);
}

TEST_F(LegacyTest, who_is_stopped_or_dies_with_their_lock_holds_nobody_up) {
  for (const int signal : {SIGSTOP, SIGKILL}) {
    AtStep end{.place = "before commit", .act = [&] {
                 static_cast<void>(::unlink(place.path().c_str()));
                 ::raise(signal);
               }};
    Child child([&] {
      end.done = true;
      NodeOptions options = place.options();
      options.steps = end.steps();
      Node node(options);
      node.add_device("gpu", 100);
      end.done = false;
      node.reserve(request(60));
      return 0;
    });
    child.wait_stopped();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(held(*other()), 0U);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, hippogriff::testing::soon);
    remove_books();
  }
}

// Whoever makes the new ones takes the lock away, and sees what was committed before that.
TEST_F(LegacyTest, who_was_stopped_with_their_lock_begins_anew_in_the_new_ones) {
  for (const char* stopped_at : {"locked",
                                 "before image",
                                 "after header",
                                 "within records",
                                 "before commit",
                                 "after commit"}) {
    AtStep stop{.place = stopped_at, .act = [&] {
                  static_cast<void>(::unlink(place.path().c_str()));
                  ::raise(SIGSTOP);
                }};
    Child stopped([&] {
      stop.done = true;
      NodeOptions options = place.options();
      options.steps = stop.steps();
      Node node(options);
      node.add_device("gpu", 100);
      stop.done = false;
      const Status status = status_of([&] { node.reserve(request(60)); });
      return status == Status::ok ? static_cast<int>(held(node)) : 0;
    });
    stopped.wait_stopped();
    const auto late = other();
    const bool has = status_of([&] { late->reserve(request(60)); }) == Status::ok;
    stopped.send(SIGCONT);
    EXPECT_EQ(stopped.wait(), has ? 0 : 60) << stopped_at;
    EXPECT_EQ(held(*late), has ? 60U : 0U) << stopped_at;
    remove_books();
  }
}

TEST_F(LegacyTest, what_is_taken_while_they_are_removed_counts_for_all) {
  const Child running = command(60);
  std::unique_ptr<Node> young;
  AtStep removal{.place = "before take", .act = [&] {
                   remove_books();
                   young = member();
                   EXPECT_TRUE(young->take(0, 35));
                 }};
  NodeOptions options = place.options();
  options.leader = Leader::parse(leader);
  options.steps = removal.steps();
  Node old(options);
  old.add_device("gpu", 100);
  EXPECT_FALSE(old.take(0, 26));
  EXPECT_EQ(young->group_used_bytes(0), 35U);
  EXPECT_TRUE(old.take(0, 25));
  EXPECT_EQ(young->group_used_bytes(0), 60U);
}

// As they are where a member takes and gives while they are read.
TEST_F(LegacyTest, boards_that_were_read_at_different_moments_give_the_right_sum) {
  const Child running = command(60);
  const auto old = member();
  ASSERT_TRUE(old->take(0, 25));
  const auto index = Leader::parse(leader)->client;
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const std::uint64_t read_before_that = 0;
  const std::size_t offset = offsetof(SegmentLayout, boards) + index * sizeof(ClientBoard) +
                             offsetof(DeviceUse, group_used_bytes);
  ASSERT_EQ(::pwrite(fd, &read_before_that, sizeof(read_before_that), static_cast<off_t>(offset)),
            static_cast<ssize_t>(sizeof(read_before_that)));
  remove_books();
  EXPECT_EQ(member()->group_used_bytes(0), 25U);
  ::close(fd);
}

// Beside a command that has 60: nobody else may have 41.
bool LegacyTest::refused_while_removing(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 30; ++turn) {
    const auto node = other();
    if (status_of([&] { node->reserve(request(41)); }) != Status::busy) {
      return false;
    }
    if (random() % 4 == 0) {
      static_cast<void>(::unlink(place.path().c_str()));
    }
  }
  return true;
}

TEST_F(LegacyTest, removing_at_any_moment_promises_nothing_twice) {
  const std::uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  const Child running = command(60);
  for (int round = 0; round < 30; ++round) {
    std::vector<Child> others;
    for (int count = 0; count < 3; ++count) {
      others.emplace_back([&, from = random()] { return refused_while_removing(from) ? 0 : 1; });
    }
    for (Child& child : others) {
      ASSERT_EQ(child.wait(), 0);
    }
  }
}

}  // namespace
}  // namespace hippogriff::node
