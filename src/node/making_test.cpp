// Making a segment while others make and remove theirs: of two that are used one after the other
// the later has what was promised in the earlier, whoever is slow, stopped or killed.
#include "base/error.hpp"
#include "node/layout.hpp"
#include "node/node.hpp"
#include "node/segment.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Answers;
using hippogriff::testing::AtStep;
using hippogriff::testing::Child;
using hippogriff::testing::environment_number;
using hippogriff::testing::held;
using hippogriff::testing::request;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using std::chrono::milliseconds;

constexpr std::array<const char*, 7> places{
    "before link", "linked", "before look", "looked", "before finish", "finished", "mapped"};

std::unique_ptr<Node> node_at(const NodeOptions& options) {
  auto made = std::make_unique<Node>(options);
  made->add_device("gpu", 100);
  return made;
}

NodeOptions stepping(const TemporarySegment& place, AtStep& step) {
  NodeOptions options = place.options();
  options.steps = step.steps();
  return options;
}

void remove(const TemporarySegment& place) {
  static_cast<void>(::unlink(place.path().c_str()));
}

// A reservation in a segment that somebody has removed.
std::unique_ptr<Node> holder_in_removed(const TemporarySegment& place,
                                        const NodeOptions& options,
                                        std::uint64_t size_bytes) {
  auto holder = node_at(options);
  holder->reserve(request(size_bytes));
  remove(place);
  return holder;
}

std::unique_ptr<Node> holder_in_removed(const TemporarySegment& place) {
  return holder_in_removed(place, place.options(), 60);
}

TEST(Making, sees_what_is_promised_in_one_that_came_and_went_meanwhile) {
  for (const char* slow_at : places) {
    const TemporarySegment place;
    std::unique_ptr<Node> quick;
    AtStep step{.place = slow_at, .act = [&] {
                  remove(place);
                  quick = holder_in_removed(place);
                }};
    const auto slow = node_at(stepping(place, step));
    EXPECT_TRUE(step.done) << slow_at;
    EXPECT_EQ(status_of([&] { slow->reserve(request(41)); }), Status::busy) << slow_at;
    EXPECT_EQ(held(*slow), 60U) << slow_at;
  }
}

TEST(Making, by_three_within_each_other_promises_nothing_twice) {
  for (const char* first_at : places) {
    for (const char* second_at : places) {
      const TemporarySegment place;
      std::unique_ptr<Node> third;
      AtStep inner{.place = second_at, .act = [&] {
                     remove(place);
                     third = holder_in_removed(place, place.options(), 30);
                   }};
      std::unique_ptr<Node> second;  // ends before `inner`, which it calls
      AtStep outer{.place = first_at, .act = [&] {
                     remove(place);
                     second = holder_in_removed(place, stepping(place, inner), 30);
                   }};
      const auto first = node_at(stepping(place, outer));
      EXPECT_EQ(held(*first), 60U) << first_at << ", " << second_at;
      EXPECT_EQ(status_of([&] { first->reserve(request(41)); }), Status::busy);
      EXPECT_EQ(held(*second), 60U) << first_at << ", " << second_at;
      EXPECT_EQ(held(*third), 60U) << first_at << ", " << second_at;
    }
  }
}

TEST(Making, is_finished_by_the_next_where_the_maker_is_killed) {
  for (const char* killed_at : places) {
    const TemporarySegment place;
    const auto holder = holder_in_removed(place);
    AtStep step{.place = killed_at, .act = [] { ::raise(SIGKILL); }};
    Child maker([&] {
      const Node node(stepping(place, step));
      return 0;
    });
    EXPECT_EQ(maker.wait(), -SIGKILL) << killed_at;
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(held(*node_at(place.options())), 60U) << killed_at;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1500)) << killed_at;
  }
}

TEST(Making, is_begun_anew_where_the_maker_is_stopped_and_the_maker_joins_that_later) {
  for (const char* stopped_at : places) {
    const TemporarySegment place;
    const auto holder = holder_in_removed(place);
    AtStep step{.place = stopped_at, .act = [] { ::raise(SIGSTOP); }};
    Child maker([&] {
      const auto node = node_at(stepping(place, step));
      return status_of([&] { node->reserve(request(31)); }) == Status::busy && held(*node) == 70
                 ? 0
                 : 1;
    });
    maker.wait_stopped();
    const auto begin = std::chrono::steady_clock::now();
    const auto late = node_at(place.options());
    EXPECT_EQ(held(*late), 60U) << stopped_at;
    late->reserve(request(10));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, hippogriff::testing::soon) << stopped_at;
    maker.send(SIGCONT);
    EXPECT_EQ(maker.wait(), 0) << stopped_at;
    EXPECT_EQ(held(*late), 70U) << stopped_at;
    EXPECT_EQ(held(*holder), 70U) << stopped_at;
  }
}

// Sleeps in the first three of its looks, and tells of each.
struct SlowMaker {
  int answers_to = -1;
  int looks = 0;

  [[nodiscard]] Steps steps() {
    return {.at =
                [](void* context, const char* at) {
                  auto& self = *static_cast<SlowMaker*>(context);
                  if (std::string_view(at) == "looking" && ++self.looks <= 3) {
                    static_cast<void>(::write(self.answers_to, "l", 1));
                    ::usleep(1'200'000);
                  }
                },
            .context = this};
  }
};

// Each of its looks takes less than others wait for, all of them together take longer.
TEST(Making, is_waited_for_while_it_goes_on) {
  const TemporarySegment place;
  const auto holder = holder_in_removed(place);
  const Answers answers;
  const Child child([&] {
    SlowMaker maker{.answers_to = answers.to()};
    NodeOptions options = place.options();
    options.steps = maker.steps();
    const auto node = node_at(options);
    node->reserve(request(10));
    static_cast<void>(::write(answers.to(), "r", 1));
    ::pause();
    return 0;
  });
  ASSERT_EQ(answers.next(1), "l");
  struct stat made{};
  ASSERT_EQ(::stat(place.path().c_str(), &made), 0);
  const auto late = node_at(place.options());
  ASSERT_EQ(answers.next(3), "llr");
  EXPECT_EQ(held(*late), 70U);
  struct stat used{};
  ASSERT_EQ(::stat(place.path().c_str(), &used), 0);
  EXPECT_EQ(used.st_ino, made.st_ino);
}

TEST(Making, leaves_no_lock_with_a_child_that_was_forked_meanwhile) {
  const TemporarySegment place;
  std::unique_ptr<Child> child;
  AtStep step{.place = "looked", .act = [&] {
                child = std::make_unique<Child>([] {
                  ::pause();
                  return 0;
                });
              }};
  const SegmentPlace where = SegmentPlace::parse(place.path());
  const Steps steps = step.steps();
  const Segment made(where, Books{}, steps);
  const Segment joined(where, Books{}, Steps{});
  EXPECT_TRUE(step.done);
  EXPECT_TRUE(joined.intact());
  EXPECT_FALSE(joined.being_replaced());
}

TEST(Making, leaves_no_lock_with_a_child_that_was_forked_before_it_failed) {
  const TemporarySegment place;
  std::unique_ptr<Child> child;
  AtStep step{.place = "looked", .act = [&] {
                child = std::make_unique<Child>([] {
                  ::pause();
                  return 0;
                });
                throw Error({.status = Status::io_error, .operation = "write segment"});
              }};
  const auto failing = [&] { const Node node(stepping(place, step)); };
  EXPECT_EQ(status_of(failing), Status::io_error);
  const auto begin = std::chrono::steady_clock::now();
  const Node next(place.options());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1500));
}

// It has the locks that it removes the file under.
TEST(Making, goes_on_where_who_removes_a_damaged_one_is_stopped) {
  const TemporarySegment place;
  Answers answers;
  const Child remover([&] {
    const int fd = ::open(place.path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock first{};
    first.l_type = F_WRLCK;
    first.l_len = 1;
    const bool ready = ::ftruncate(fd, sizeof(SegmentLayout)) == 0 &&
                       ::fcntl(fd, F_OFD_SETLK, &first) == 0 && ::flock(fd, LOCK_EX) == 0;
    static_cast<void>(::write(answers.to(), ready ? "y" : "n", 1));
    ::pause();
    return 0;
  });
  ASSERT_EQ(answers.next(1), "y");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(held(*node_at(place.options())), 0U);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, hippogriff::testing::soon);
}

// In a folder where only who made a file may remove it.
TEST(Making, of_a_group_is_finished_by_another_user_where_the_maker_is_killed) {
  constexpr gid_t group = 12345;
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  for (const char* killed_at : places) {
    const TemporarySegment place;
    const SegmentPlace shared{.path = place.path(), .group = group};
    AtStep step{.place = killed_at, .act = [] { ::raise(SIGKILL); }};
    Child maker([&] {
      const Steps steps = step.steps();
      const Segment segment(shared, Books{}, steps);
      return 0;
    });
    EXPECT_EQ(maker.wait(), -SIGKILL) << killed_at;
    Child other([&] {
      if (::setgroups(0, nullptr) != 0 || ::setresgid(group, group, group) != 0 ||
          ::setresuid(12345, 12345, 12345) != 0) {
        return 1;
      }
      const Segment segment(shared, Books{}, Steps{});
      return segment.intact() ? 0 : 2;
    });
    EXPECT_EQ(other.wait(), 0) << killed_at;
  }
}

// What the processes of the test below tell each other.
struct Counts {
  std::atomic<std::uint64_t> held{0};  // by each of four, of 16 bits: read and changed as one
  std::atomic<std::uint64_t> most{0};
  std::atomic<std::int64_t> reservations{0};
  std::atomic<std::int64_t> refusals{0};
};

constexpr std::size_t reservers = 4;

void hold(Counts& counts, std::size_t which, std::uint64_t size_bytes) {
  const std::uint64_t more = size_bytes << (16 * which);
  const std::uint64_t now = counts.held.fetch_add(more) + more;
  const std::uint64_t sum =
      (now & 0xffff) + (now >> 16 & 0xffff) + (now >> 32 & 0xffff) + (now >> 48);
  std::uint64_t most = counts.most;
  while (most < sum && !counts.most.compare_exchange_weak(most, sum)) {
  }
  counts.reservations.fetch_add(1);
}

// Reserves and releases, also with a Node of its own each time.
[[noreturn]] void reserve_for_ever(const TemporarySegment& place,
                                   std::size_t which,
                                   std::uint64_t seed,
                                   Counts& counts) {
  std::mt19937_64 random(seed);
  std::unique_ptr<Node> node;
  for (;;) {
    const std::uint64_t size_bytes = 1 + random() % 100;
    const Status status = status_of([&] {
      if (node == nullptr) {
        node = node_at(place.options());
      }
      const std::uint64_t handle =
          node->reserve(request(size_bytes, milliseconds(random() % 2 == 0 ? 100 : 0)));
      hold(counts, which, size_bytes);
      ::usleep(static_cast<useconds_t>(random() % 2000));
      counts.held.fetch_sub(size_bytes << (16 * which));
      node->release(handle);
    });
    counts.refusals.fetch_add(status != Status::ok ? 1 : 0);
    if (random() % 4 == 0) {
      node.reset();
    }
  }
}

class RemovingTest : public ::testing::Test {
 public:
  RemovingTest() {
    void* memory =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    counts = new (memory) Counts;
    std::cout << "seed " << seed << '\n';
  }

  ~RemovingTest() override { ::munmap(counts, sizeof(Counts)); }

  RemovingTest(const RemovingTest&) = delete;
  RemovingTest& operator=(const RemovingTest&) = delete;

 protected:
  void begin_reserver(std::size_t which) {
    children.at(which) = std::make_unique<Child>(
        [&, from = random()]() -> int { reserve_for_ever(place, which, from, *counts); });
  }

  // What it holds counts no more when it is killed, and is promised to nobody before.
  void kill_reserver(std::size_t which) {
    Child& child = *children.at(which);
    child.send(SIGSTOP);
    child.wait_stopped();
    counts->held.fetch_and(~(std::uint64_t{0xffff} << (16 * which)));
    child.send(SIGKILL);
    child.wait();
  }

  // True when there was one. The maker beside it is killed at whatever it does then.
  bool remove_once() {
    const Child maker([&]() -> int {
      for (;;) {
        static_cast<void>(status_of([&] { node_at(place.options()); }));
      }
    });
    ::usleep(static_cast<useconds_t>(random() % 8000));
    const bool removed = ::unlink(place.path().c_str()) == 0;
    ::usleep(static_cast<useconds_t>(random() % 4000));
    return removed;
  }

  const std::uint64_t seed = std::random_device{}();
  std::mt19937_64 random{seed};
  TemporarySegment place;
  Counts* counts = nullptr;
  std::vector<std::unique_ptr<Child>> children{reservers};
};

// HIPPOGRIFF_NODE_REMOVING_SECONDS: for how long.
TEST_F(RemovingTest,
       at_any_moment_while_others_make_reserve_and_are_killed_promises_nothing_twice) {
  const std::chrono::seconds seconds(environment_number("HIPPOGRIFF_NODE_REMOVING_SECONDS", 2));
  for (std::size_t which = 0; which < reservers; ++which) {
    begin_reserver(which);
  }
  int removals = 0;
  const auto end = std::chrono::steady_clock::now() + seconds;
  while (std::chrono::steady_clock::now() < end) {
    removals += remove_once() ? 1 : 0;
    if (random() % 2 == 0) {
      const std::size_t which = random() % reservers;
      kill_reserver(which);
      begin_reserver(which);
    }
  }
  children.clear();
  std::cout << counts->reservations << " reservations, " << counts->refusals << " refused, "
            << removals << " removals, most promised at once " << counts->most << '\n';
  EXPECT_LE(counts->most, 100U);
  EXPECT_GT(counts->reservations, 0) << "it would show nothing";
}

}  // namespace
}  // namespace hippogriff::node
