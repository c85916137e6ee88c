// The thread: the window that most was copied from comes first.
#include "array/window_registrar.hpp"

#include "base/quiet_thread.hpp"

#include <system_error>
#include <utility>

namespace hippogriff::ondemand {

namespace {

// After each window: others' calls of the driver wait for the one that registers, and whoever
// calls it again at once is the first. A launch took up to 50 ms without.
constexpr std::chrono::microseconds between_windows{50};

}  // namespace

WindowRegistrar::~WindowRegistrar() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void WindowRegistrar::watch(const std::shared_ptr<FileWindows>& windows) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(windows_, [](const auto& known) { return known.expired(); });
  windows_.push_back(windows);
}

void WindowRegistrar::ask() {
  const std::scoped_lock lock(mutex_);
  asked_ = true;
  if (!thread_.joinable()) {
    try {
      thread_ = quiet_thread("hippo-windows", [this] { run(); });
    } catch (const std::system_error&) {
      asked_ = false;  // everything is copied, as long as there is no thread to be had
      return;
    }
  }
  changed_.notify_all();
}

std::vector<std::shared_ptr<FileWindows>> WindowRegistrar::watched() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<FileWindows>> live;
  for (const auto& known : windows_) {
    if (auto windows = known.lock()) {
      live.push_back(std::move(windows));
    }
  }
  return live;
}

// False when there is nothing left to do.
bool WindowRegistrar::try_one() {
  std::shared_ptr<FileWindows> of;
  FileWindows::Hot hottest;
  for (const auto& windows : watched()) {
    const auto hot = windows->hottest();
    if (hot && hot->copied_ns > hottest.copied_ns) {
      hottest = *hot;
      of = windows;
    }
  }
  if (of != nullptr) {
    of->put_in_place(hottest.window);
  }
  return of != nullptr;
}

// Until there is something to do; false: the end.
bool WindowRegistrar::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || asked_; });
  asked_ = false;
  return !stop_;
}

// False: the end.
bool WindowRegistrar::pause() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, between_windows, [this] { return stop_.load(); });
}

void WindowRegistrar::run() noexcept {
  while (wait()) {
    try {
      while (try_one() && pause()) {
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): memory is short; copied until somebody asks
    }
  }
}

}  // namespace hippogriff::ondemand
