// Time namespaces, from /proc.
//
// What processes tell each other needs a clock that neither jumps nor differs. CLOCK_REALTIME and
// CLOCK_TAI are the same in all namespaces, but are set; CLOCK_MONOTONIC and CLOCK_BOOTTIME are not
// set, but shifted, as is all that the kernel derives from them for who asks (uptime, when a
// process began). A namespace's shift cannot change once a process is in it, and each process may
// read its own: so it is taken off again.
#include "node/host_clock.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>

namespace hippogriff::node {

namespace {

// The file tells the shift of the namespace that children will be in, which may have been left for
// them by unshare.
bool children_are_in_ours() noexcept {
  struct stat ours{};
  struct stat of_children{};
  return ::stat("/proc/self/ns/time", &ours) == 0 &&
         ::stat("/proc/self/ns/time_for_children", &of_children) == 0 &&
         ours.st_ino == of_children.st_ino;
}

std::atomic<std::int64_t>& shift_ns() noexcept {
  static std::atomic<std::int64_t> shift{time_namespace().monotonic_ns};
  return shift;
}

}  // namespace

TimeNamespace time_namespace() noexcept {
  const int fd = ::open("/proc/self/timens_offsets", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return {};
  }
  std::array<char, 256> text{};
  static_cast<void>(::read(fd, text.data(), text.size() - 1));
  static_cast<void>(::close(fd));
  std::array<long long, 2> seconds{};
  std::array<long long, 2> nanoseconds{};
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): the kernel wrote them
  const int found = std::sscanf(text.data(),
                                "monotonic %lld %lld boottime %lld %lld",
                                &seconds[0],
                                &nanoseconds[0],
                                &seconds[1],
                                &nanoseconds[1]);
  if (found != 4 || !children_are_in_ours()) {
    return {};
  }
  return {.monotonic_ns = seconds[0] * 1'000'000'000 + nanoseconds[0],
          .boottime_ns = seconds[1] * 1'000'000'000 + nanoseconds[1]};
}

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &now));
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec -
         shift_ns().load(std::memory_order_relaxed);
}

void note_time_namespace() noexcept {
  shift_ns().store(time_namespace().monotonic_ns, std::memory_order_relaxed);
}

}  // namespace hippogriff::node
