// Sleeping on a word that processes share, and waking who sleeps there.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace hippogriff::node {

// Until woken, or the word is not `seen`, or the time (of CLOCK_MONOTONIC) has passed: callers look
// themselves. The word is only read by the kernel.
inline void futex_wait(const std::atomic<std::uint32_t>& word,
                       std::uint32_t seen,
                       std::chrono::nanoseconds at_most) noexcept {
  if (at_most <= std::chrono::nanoseconds::zero()) {
    return;
  }
  timespec time{};
  time.tv_sec = static_cast<std::time_t>(at_most.count() / 1'000'000'000);
  time.tv_nsec = static_cast<long>(at_most.count() % 1'000'000'000);
  static_cast<void>(::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0));
}

inline void futex_wake(const std::atomic<std::uint32_t>& word, int count) noexcept {
  static_cast<void>(::syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0));
}

}  // namespace hippogriff::node
