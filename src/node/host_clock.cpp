// Time namespaces, from /proc.
//
// What processes tell each other needs a clock that neither jumps nor differs. CLOCK_REALTIME and
// CLOCK_TAI are the same in all namespaces, but are set; CLOCK_MONOTONIC and CLOCK_BOOTTIME are not
// set, but shifted, as is all that the kernel derives from them for who asks (uptime, when a
// process began). A namespace's shift cannot change once a process is in it, and each process may
// read its own: so it is taken off again.
#include "node/host_clock.hpp"

#include "base/kernel_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
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
  const ssize_t size = ::read(fd, text.data(), text.size());
  static_cast<void>(::close(fd));
  const auto offsets =
      parse_clock_offsets({text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  if (!offsets || !children_are_in_ours()) {
    return {};
  }
  return {.monotonic_ns = offsets->monotonic_ns, .boottime_ns = offsets->boottime_ns};
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
