// A count of those who have windows to close, and an exit that looks at it.
#include "transfer/copied_windows.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <thread>
#include <utility>

namespace hippogriff {
namespace {

constexpr std::chrono::milliseconds exit_patience{1000};

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<int> closing{0};
std::atomic<pid_t> closing_process{0};
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

void wait_until_closed() {
  const auto end = std::chrono::steady_clock::now() + exit_patience;
  // A forked child has a copy of the count, and none of the threads.
  while (closing > 0 && closing_process == ::getpid() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void CopiedWindows::add(RegisteredWindow window) noexcept {
  // Only now: what is registered last runs first, so before the driver's own.
  static const int registered = std::atexit(wait_until_closed);
  static_cast<void>(registered);
  try {
    windows_.push_back(std::move(window));
  } catch (const std::bad_alloc&) {
    return;  // it is closed at once
  }
  if (windows_.size() == 1) {
    const pid_t process = ::getpid();
    if (closing_process.exchange(process) != process) {
      closing = 0;  // the parent's
    }
    ++closing;
  }
}

void CopiedWindows::close() noexcept {
  if (windows_.empty()) {
    return;
  }
  windows_.clear();
  --closing;
}

}  // namespace hippogriff
