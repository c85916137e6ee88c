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
  const std::scoped_lock lock(mutex_);
  std::erase_if(windows_, [](const auto& known) { return known.expired(); });
  windows_.push_back(windows);
}

void WindowRegistrar::begin_look() {
  const std::scoped_lock lock(mutex_);
  wanted_ = true;
  if (!thread_.joinable()) {
    try {
      thread_ = quiet_thread("hippo-windows", [this] { run(); });
    } catch (const std::system_error&) {
      return;  // everything is copied, as long as there is no thread to be had
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

void WindowRegistrar::run() noexcept {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || wanted_; });
      wanted_ = false;
    }
    for (bool found = true; found && !stop_;) {
      found = false;
      std::shared_ptr<FileWindows> of;
      FileWindows::Hot hottest;
      for (auto& windows : watched()) {
        const auto hot = windows->hottest();
        if (hot && (!found || hot->copied_ns > hottest.copied_ns)) {
          hottest = *hot;
          of = std::move(windows);
          found = true;
        }
      }
      if (found) {
        of->put_in_place(hottest.window);
      }
    }
    if (stop_) {
      return;
    }
  }
}

}  // namespace hippogriff::ondemand
