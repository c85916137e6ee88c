// The thread: the window that most was copied from comes first.
#include "array/window_registrar.hpp"

#include "array/quiet_thread.hpp"

#include <system_error>
#include <utility>

namespace hippogriff::ondemand {

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

// False when there is nothing to try. A window that is read comes before all others.
bool WindowRegistrar::try_one() {
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
    return true;
  }
  for (const auto& windows : all) {
    if (const auto window = windows->next_unasked()) {
      windows->put_in_place(*window);
      return true;
    }
  }
  return false;
}

void WindowRegistrar::run() noexcept {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || wanted_; });
      wanted_ = false;
    }
    try {
      while (!stop_ && try_one()) {
      }
    } catch (...) {  // memory is short: everything is copied meanwhile
    }
    if (stop_) {
      return;
    }
  }
}

}  // namespace hippogriff::ondemand
