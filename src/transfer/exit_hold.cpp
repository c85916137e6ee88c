// A count of those who hold it, and an exit that looks at it.
#include "transfer/exit_hold.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

namespace hippogriff {
namespace {

constexpr std::chrono::milliseconds exit_patience{1000};

// The process in the upper half, how many hold it in the lower: a forked child has a copy, and none
// of the threads.
std::atomic<std::uint64_t> holds{0};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

std::uint64_t none_of_this_process() {
  return static_cast<std::uint64_t>(::getpid()) << 32U;
}

void wait_until_let_go() {
  const auto end = std::chrono::steady_clock::now() + exit_patience;
  while (holds > none_of_this_process() && holds >> 32U == none_of_this_process() >> 32U &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

ExitHold::ExitHold() noexcept {
  // Only now: what is registered last runs first, so before the driver's own.
  static const int registered = std::atexit(wait_until_let_go);
  static_cast<void>(registered);
  const std::uint64_t none = none_of_this_process();
  std::uint64_t before = holds;
  while (!holds.compare_exchange_weak(before, (before >> 32U == none >> 32U ? before : none) + 1)) {
  }
}

ExitHold::~ExitHold() {
  --holds;
}

}  // namespace hippogriff
