// A count of those who hold it, and an exit that looks at it.
#include "transfer/exit_hold.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

namespace hippogriff {
namespace {

constexpr std::chrono::milliseconds exit_patience{1000};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> holds{0};
std::atomic<pid_t> holding_process{0};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void wait_until_let_go() {
  const auto end = std::chrono::steady_clock::now() + exit_patience;
  // A forked child has a copy of the count, and none of the threads.
  while (holds > 0 && holding_process == ::getpid() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

ExitHold::ExitHold() noexcept {
  // Only now: what is registered last runs first, so before the driver's own.
  static const int registered = std::atexit(wait_until_let_go);
  static_cast<void>(registered);
  const pid_t process = ::getpid();
  if (holding_process.exchange(process) != process) {
    holds = 0;  // the parent's
  }
  ++holds;
}

ExitHold::~ExitHold() {
  --holds;
}

}  // namespace hippogriff
