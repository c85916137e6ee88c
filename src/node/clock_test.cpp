// Clocks that jump: processes of other time namespaces share a segment, and no wait asks for the
// time of day, which may be set.
#include "node/node.hpp"
#include "testing/eventually.hpp"
#include "testing/node_segment.hpp"
#include "testing/time_namespace.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Answers;
using hippogriff::testing::can_shift_clocks;
using hippogriff::testing::Child;
using hippogriff::testing::ClockShift;
using hippogriff::testing::eventually;
using hippogriff::testing::half_of_uptime;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::request;
using hippogriff::testing::shift_clocks;
using hippogriff::testing::soon;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t grants_max = 1000;

// Whether all that wait began in the last seconds, and none later than now.
bool waits_are_true(Node& node) {
  const NodeView view = node.view();
  const auto now = static_cast<std::int64_t>(view.now_ns);
  return std::ranges::all_of(view.reservations, [&](const NodeView::Reservation& reservation) {
    const std::int64_t since = reservation.record.since_ns;
    return !reservation.record.waits() ||
           (since <= now && now - since < std::chrono::nanoseconds(soon).count());
  });
}

// Children whose clocks are ahead of ours or behind, under the policy that looks at the clock.
class ClockTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (!can_shift_clocks()) {
      GTEST_SKIP() << "no time namespaces here, or only for root, or threads of a sanitizer";
    }
    shift.monotonic = GetParam() > 0 ? seconds(100'000) : -half_of_uptime();
    shift.boottime = shift.monotonic;
  }

  // `body` gets its node. Exits with 98 where its clocks could not be shifted.
  template <typename Body>
  [[nodiscard]] Child shifted(Body body) const {
    return Child([this, body] {
      if (!shift_clocks(shift)) {
        return 98;
      }
      Node node(place.options(Policy::aging_mmu));
      node.add_device("gpu", 100);
      return body(node);
    });
  }

  // Nobody passes who has waited for so long. Returns the handle of what is held from now on.
  static std::uint64_t hold(Node& node, std::uint64_t size_bytes, milliseconds wait_max) {
    node.add_device("gpu", 100);
    node.set_policy(
        Policy::aging_mmu,
        {.grants_max = grants_max, .wait_ns_max = std::chrono::nanoseconds(wait_max).count()});
    return node.reserve(request(size_bytes));
  }

  TemporarySegment place;
  ClockShift shift;
};

std::string shift_name(const ::testing::TestParamInfo<int>& param) {
  return param.param > 0 ? "ahead" : "behind";
}

INSTANTIATE_TEST_SUITE_P(Shift, ClockTest, ::testing::Values(1, -1), shift_name);

TEST_P(ClockTest, of_a_child_is_another) {
  timespec before{};
  ::clock_gettime(CLOCK_MONOTONIC, &before);
  Child child([&] {
    timespec after{};
    const bool shifts = shift_clocks(shift);
    ::clock_gettime(CLOCK_MONOTONIC, &after);
    const seconds passed(after.tv_sec - before.tv_sec);
    return shifts && passed >= shift.monotonic && passed < shift.monotonic + soon ? 0 : 1;
  });
  EXPECT_EQ(child.wait(), 0) << "the tests beside this one prove nothing";
}

TEST_P(ClockTest, does_not_change_how_long_anybody_is_seen_to_have_waited) {
  Node ours(place.options());
  const std::uint64_t all = hold(ours, 100, seconds(30));
  const Answers answers;
  Child theirs = shifted([&](Node& node) {
    std::thread waits([&] { node.reserve(request(60, long_wait)); });
    const bool both = eventually([&] { return waiting(node) == 2; });
    const char right = both && waits_are_true(node) ? 'r' : 'x';
    static_cast<void>(::write(answers.to(), &right, 1));
    waits.join();
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(ours) == 1; }));
  std::thread waits([&] { ours.release(ours.reserve(request(30, long_wait))); });
  EXPECT_TRUE(eventually([&] { return waiting(ours) == 2; }));
  EXPECT_TRUE(waits_are_true(ours));
  EXPECT_EQ(answers.next(1), "r") << "theirs has seen both, too";
  ours.release(all);
  waits.join();
  EXPECT_EQ(theirs.wait(), 0);
}

TEST_P(ClockTest, does_not_exhaust_a_request_before_its_time) {
  Node ours(place.options());
  hold(ours, 50, seconds(3600));
  const Child theirs = shifted([](Node& node) {
    node.reserve(request(60, long_wait));
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(ours) == 1; }));
  EXPECT_EQ(status_of([&] { ours.release(ours.reserve(request(10))); }), Status::ok);
  Child younger = shifted([](Node& node) {
    return status_of([&] { node.reserve(request(10)); }) == Status::ok ? 0 : 1;
  });
  EXPECT_EQ(younger.wait(), 0);
}

TEST_P(ClockTest, does_not_keep_a_request_from_being_exhausted) {
  Node ours(place.options());
  hold(ours, 50, milliseconds(300));
  const Child theirs = shifted([](Node& node) {
    node.reserve(request(60, long_wait));
    return 0;
  });
  ASSERT_TRUE(eventually([&] { return waiting(ours) == 1; }));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(status_of([&] { ours.reserve(request(10)); }), Status::busy);
  Child younger = shifted([](Node& node) {
    return status_of([&] { node.reserve(request(10)); }) == Status::busy ? 0 : 1;
  });
  EXPECT_EQ(younger.wait(), 0);
}

// The kernel tells when a process began by the clock of who asks.
TEST_P(ClockTest, does_not_make_the_living_look_dead_nor_the_dead_alive) {
  Node ours(place.options());
  hold(ours, 30, seconds(30));
  const Answers answers;
  Child theirs = shifted([&](Node& node) {
    const char ready = held(node) == 30 ? 'r' : 'x';
    node.reserve(request(50));
    static_cast<void>(::write(answers.to(), &ready, 1));
    ::pause();
    return 0;
  });
  ASSERT_EQ(answers.next(1), "r") << "ours is alive to them";
  EXPECT_EQ(held(ours), 80U);
  EXPECT_EQ(status_of([&] { ours.reserve(request(21)); }), Status::busy);
  theirs.send(SIGKILL);
  EXPECT_EQ(theirs.wait(), -SIGKILL);
  EXPECT_EQ(held(ours), 30U);
  ours.release(ours.reserve(request(70)));
}

TEST_P(ClockTest, does_not_put_removed_segments_in_another_order) {
  const Answers answers;
  const Child theirs = shifted([&](Node& node) {
    node.reserve(request(10));
    static_cast<void>(::write(answers.to(), "r", 1));
    ::pause();
    return 0;
  });
  ASSERT_EQ(answers.next(1), "r");
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  Node ours(place.options());
  hold(ours, 20, seconds(30));
  ASSERT_EQ(held(ours), 30U);
  ASSERT_EQ(::unlink(place.path().c_str()), 0);
  Child later = shifted([](Node& node) {
    return held(node) == 30 && node.view().bound.grants_max == grants_max ? 0 : 1;
  });
  EXPECT_EQ(later.wait(), 0) << "what is in the segment that was removed last counts";
}

// Kills the process at a wait whose end would move when somebody sets the time of day: until a time
// of that clock. Waits without an end, and for so long from now, are none.
bool die_at_waits_by_time_of_day() {
  const auto argument = [](std::size_t index) {
    return static_cast<std::uint32_t>(offsetof(seccomp_data, args) + index * 8);
  };
  const auto load = [](std::uint32_t from) {
    return sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, from);
  };
  const auto jump = [](std::uint16_t test, std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    return sock_filter BPF_JUMP(static_cast<std::uint16_t>(BPF_JMP | test | BPF_K), value, yes, no);
  };
  std::array filter{
      load(offsetof(seccomp_data, nr)),
      jump(BPF_JEQ, __NR_futex, 0, 6),
      load(argument(1)),  // a futex: which clock
      jump(BPF_JSET, FUTEX_CLOCK_REALTIME, 0, 9),
      load(argument(3)),  // where its time is, if it has one
      jump(BPF_JEQ, 0, 0, 8),
      load(argument(3) + 4),
      jump(BPF_JEQ, 0, 5, 6),
      jump(BPF_JEQ, __NR_clock_nanosleep, 0, 4),
      load(argument(0)),
      jump(BPF_JEQ, CLOCK_REALTIME, 0, 2),
      load(argument(1)),
      jump(BPF_JSET, TIMER_ABSTIME, 1, 0),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const sock_fprog program{.len = static_cast<unsigned short>(filter.size()),
                           .filter = filter.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Sleeps until a time of the clock that is passed.
int sleep_until_now(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return ::clock_nanosleep(clock, TIMER_ABSTIME, &now, nullptr);
}

// All the ways to wait: for memory in vain and not, for the lock, and for what is told later.
bool wait_in_every_way(const TemporarySegment& place) {
  NodeOptions options = place.options();
  options.lock_timeout = milliseconds(100);
  Node node(options);
  node.add_device("gpu", 100);
  const std::uint64_t all = node.reserve(request(100));
  const bool late =
      status_of([&] { node.reserve(request(1, milliseconds(60))); }) == Status::timed_out;
  std::thread waits([&] { node.release(node.reserve(request(100, long_wait))); });
  static_cast<void>(eventually([&] { return waiting(node) == 1; }));
  hippogriff::testing::AtStep lingers{
      .place = "locked", .act = [] { std::this_thread::sleep_for(milliseconds(500)); }};
  NodeOptions slow = place.options();
  slow.steps = lingers.steps();
  std::thread locks([&] { const Node other(slow); });
  const bool busy = eventually(
      [&] { return status_of([&] { static_cast<void>(node.view()); }) == Status::busy; });
  node.release(all);  // told later
  locks.join();
  waits.join();
  return late && busy && eventually([&] { return held(node) == 0; });
}

// To set the time of day would do so for all who use the machine. What can be shown without that:
// no wait of the kernel's ends by it.
TEST(TimeOfDay, ends_no_wait) {
  Child able([] { return die_at_waits_by_time_of_day() ? sleep_until_now(CLOCK_MONOTONIC) : 1; });
  if (able.wait() != 0) {
    GTEST_SKIP() << "no filters for system calls here";
  }
  Child dies([] { return die_at_waits_by_time_of_day() ? sleep_until_now(CLOCK_REALTIME) : 1; });
  EXPECT_EQ(dies.wait(), -SIGSYS) << "the filter proves nothing";
  const TemporarySegment place;
  Child waits([&] { return die_at_waits_by_time_of_day() && wait_in_every_way(place) ? 0 : 1; });
  EXPECT_EQ(waits.wait(), 0);
}

}  // namespace
}  // namespace hippogriff::node
