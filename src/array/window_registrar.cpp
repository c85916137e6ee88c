// The thread: the window that most was copied from comes first.
#include "array/window_registrar.hpp"

#include "array/quiet_thread.hpp"

#include <system_error>
#include <utility>

namespace hippogriff::ondemand {

namespace {

// Registering holds up other calls of the driver: whoever opens an array may open another one.
constexpr std::chrono::milliseconds open_time{20};

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
  {
    const std::scoped_lock lock(mutex_);
    std::erase_if(windows_, [](const auto& known) { return known.expired(); });
    windows_.push_back(windows);
    quiet_from_ = Clock::now() + open_time;
  }
  begin_look();
}

void WindowRegistrar::begin_look() {
  const std::scoped_lock lock(mutex_);
  wanted_ = true;
  if (!thread_.joinable()) {
    try {
      thread_ = quiet_thread("hippo-windows", [this] { run(); });
    } catch (const std::system_error&) {
      wanted_ = false;  // everything is copied, as long as there is no thread to be had
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

// False when no window is read that is worth it.
bool WindowRegistrar::try_hottest() {
  const auto all = watched();
  FileWindows* of = nullptr;
  FileWindows::Hot hottest;
  for (const auto& windows : all) {
    const auto hot = windows->hottest();
    if (hot && hot->copied_ns > hottest.copied_ns) {
      hottest = *hot;
      of = windows.get();
    }
  }
  if (of != nullptr) {
    of->put_in_place(hottest.window);
  }
  return of != nullptr;
}

// False when all windows have been tried.
bool WindowRegistrar::try_unasked() {
  for (const auto& windows : watched()) {
    if (const auto window = windows->next_unasked()) {
      windows->put_in_place(*window);
      return true;
    }
  }
  return false;
}

void WindowRegistrar::run() noexcept {
  bool all_tried = false;
  for (;;) {
    try {
      while (!stop_ && try_hottest()) {
      }
      std::unique_lock lock(mutex_);
      const auto is_wanted = [this] { return stop_ || wanted_; };
      if (all_tried) {
        changed_.wait(lock, is_wanted);
      } else {
        changed_.wait_until(lock, quiet_from_, is_wanted);
      }
      const bool asked = wanted_.exchange(false);
      lock.unlock();
      if (stop_) {
        return;
      }
      all_tried = !asked && !try_unasked();
    } catch (...) {  // memory is short: everything is copied until somebody wakes us
      all_tried = true;
    }
  }
}

}  // namespace hippogriff::ondemand
