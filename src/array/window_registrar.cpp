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
  const std::scoped_lock lock(mutex_);
  std::erase_if(windows_, [](const auto& known) { return known.expired(); });
  windows_.push_back(windows);
  quiet_from_ = Clock::now() + open_time;
  has_untried_ = true;
  start_locked();
}

void WindowRegistrar::ask() {
  const std::scoped_lock lock(mutex_);
  asked_ = true;
  start_locked();
}

void WindowRegistrar::start_locked() {
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

// What is read again comes first. Then what may be read soon: where a window is read now the
// copies are faster. False when there is nothing left to do.
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
  for (const auto& windows : all) {
    const auto unasked = hottest.is_read_again ? std::nullopt : windows->next_unasked();
    if (unasked) {
      windows->put_in_place(*unasked);
      return true;
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
  while (!stop_ && !asked_ && !(has_untried_ && Clock::now() >= quiet_from_)) {
    if (has_untried_) {
      changed_.wait_until(lock, quiet_from_);
    } else {
      changed_.wait(lock);
    }
  }
  asked_ = false;
  has_untried_ = false;
  return !stop_;
}

void WindowRegistrar::run() noexcept {
  while (wait()) {
    try {
      while (!stop_ && try_one()) {
      }
    } catch (...) {  // NOLINT(bugprone-empty-catch): memory is short; copied until somebody asks
    }
  }
}

}  // namespace hippogriff::ondemand
