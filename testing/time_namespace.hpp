// Clocks that really jump, for a process of a test: a time namespace of its own.
#pragma once

#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <string>

namespace hippogriff::testing {

// By how much a process' clocks are ahead of the machine's.
struct ClockShift {
  std::chrono::seconds monotonic{0};
  std::chrono::seconds boottime{0};
};

// Shifts the clocks of the calling process, which has one thread. Only root can, and not
// everywhere; a clock cannot be set to before 0.
inline bool shift_clocks(const ClockShift& shift) {
  if (::unshare(CLONE_NEWTIME) != 0) {
    return false;
  }
  const std::string text = "monotonic " + std::to_string(shift.monotonic.count()) +
                           " 0\nboottime " + std::to_string(shift.boottime.count()) + " 0\n";
  const int offsets = ::open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
  const bool written = ::write(offsets, text.data(), text.size()) == std::ssize(text);
  ::close(offsets);
  const int made = ::open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
  const bool entered = written && ::setns(made, CLONE_NEWTIME) == 0;
  ::close(made);
  return entered;
}

inline bool can_shift_clocks() {
  Child child([] { return shift_clocks({}) ? 0 : 1; });
  return child.wait() == 0;
}

// Half of the time since the machine has started: a clock can be set back so far.
inline std::chrono::seconds half_of_uptime() {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &now));
  return std::chrono::seconds(now.tv_sec / 2);
}

}  // namespace hippogriff::testing
