// The thread that looks, and the thread that calls the driver.
#include "transfer/driver_watch.hpp"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <utility>

namespace hippogriff {

namespace {

// An answer that comes late at the end is waited for so long.
constexpr std::chrono::seconds end_patience{1};

}  // namespace

struct DriverWatch::Shared {
  explicit Shared(std::shared_ptr<Device> the_device) : device(std::move(the_device)) {}

  const std::shared_ptr<Device> device;
  std::mutex mutex;
  std::condition_variable changed;
  bool on = false;
  bool sleeping = false;  // the watcher, until it is on
  bool asked = false;     // and not answered
  bool ending = false;
  bool asker_ended = false;
};

DriverWatch::DriverWatch(std::shared_ptr<Device> device, std::function<void()> stuck)
    : stuck_(std::move(stuck)), shared_(std::make_shared<Shared>(std::move(device))) {}

DriverWatch::~DriverWatch() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->ending = true;
  }
  shared_->changed.notify_all();
  if (watcher_.joinable()) {
    watcher_.join();
  }
  if (!asker_.joinable()) {
    return;
  }
  std::unique_lock lock(shared_->mutex);
  const bool ended =
      shared_->changed.wait_for(lock, end_patience, [this] { return shared_->asker_ended; });
  lock.unlock();
  if (ended) {
    asker_.join();
  } else {
    asker_.detach();
  }
}

void DriverWatch::turn_on() noexcept {
  const std::lock_guard lock(shared_->mutex);
  shared_->on = true;
  if (shared_->sleeping) {
    shared_->changed.notify_all();
  }
  if (!watcher_.joinable()) {
    try {
      watcher_ = std::thread([this] { watch(); });
    } catch (const std::system_error&) {
      return;
    }
  }
}

void DriverWatch::turn_off() noexcept {
  const std::lock_guard lock(shared_->mutex);
  shared_->on = false;
}

void DriverWatch::watch() {
  Shared& shared = *shared_;
  int unanswered = 0;
  std::unique_lock lock(shared.mutex);
  while (!shared.ending) {
    if (!shared.on) {
      unanswered = 0;
      shared.sleeping = true;
      shared.changed.wait(lock, [&shared] { return shared.on || shared.ending; });
      shared.sleeping = false;
    }
    shared.changed.wait_for(lock, interval_, [&shared] { return shared.ending; });
    if (!shared.on || shared.ending) {
      continue;
    }
    if (!shared.asked) {
      unanswered = 0;
      ask();
    } else if (++unanswered == looks_max) {
      unanswered = 0;
      lock.unlock();
      stuck_();
      lock.lock();
    }
  }
}

// The shared state is locked.
void DriverWatch::ask() {
  if (!asker_.joinable()) {
    try {
      asker_ = std::thread([shared = shared_] { answer(*shared); });
    } catch (const std::system_error&) {
      return;  // the next look tries again
    }
  }
  shared_->asked = true;
  shared_->changed.notify_all();
}

// Recording an event waits for the driver as copies do; queries do not (seen on an H200, driver
// 580: they were answered while copies stood still behind a kernel that was being loaded).
void DriverWatch::answer(Shared& shared) {
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Event> event;
  std::unique_lock lock(shared.mutex);
  while (true) {
    shared.changed.wait(lock, [&shared] { return shared.asked || shared.ending; });
    if (shared.ending) {
      break;
    }
    lock.unlock();
    try {
      shared.device->make_current();
      if (event == nullptr) {
        stream = shared.device->create_stream();
        event = shared.device->create_event();
      }
      stream->record(*event);
    } catch (...) {  // NOLINT(bugprone-empty-catch): a failure is an answer too
    }
    lock.lock();
    shared.asked = false;
  }
  lock.unlock();
  event.reset();
  stream.reset();
  lock.lock();
  shared.asker_ended = true;
  shared.changed.notify_all();
}

}  // namespace hippogriff
