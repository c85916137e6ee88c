// The thread behind a stream of the host device.
#include "device/host_queue.hpp"

#include "device/host_pages.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

namespace hippogriff {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds stop_timeout{5};
// How long a stream that is told to stop may go on without noticing.
constexpr std::chrono::milliseconds stop_latency{2};
constexpr std::size_t copy_piece_bytes = std::size_t{16} << 20;
constexpr int flag_spins_max = 100;
constexpr std::chrono::microseconds flag_sleep_min{5};
constexpr std::chrono::microseconds flag_sleep_max{100};

// Signals of the process are for its own threads; those of this thread's own faults stay
// deliverable.
sigset_t asynchronous_signals() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
    sigdelset(&signals, fault);
  }
  return signals;
}

class SignalsBlocked {
 public:
  SignalsBlocked() {
    const sigset_t signals = asynchronous_signals();
    blocked_ = pthread_sigmask(SIG_BLOCK, &signals, &before_) == 0;
  }

  ~SignalsBlocked() {
    if (blocked_) {
      pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
  }

  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  SignalsBlocked(SignalsBlocked&&) = delete;
  SignalsBlocked& operator=(SignalsBlocked&&) = delete;

 private:
  sigset_t before_{};
  bool blocked_ = false;
};

bool flag_reached(const HostFlag& flag) {
  const std::uint32_t now = std::atomic_ref(*flag.word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - flag.value) >= 0;
}

}  // namespace

StreamQueue::StreamQueue(std::string device_name, std::shared_ptr<SimulatedLink> link)
    : device_name_(std::move(device_name)), link_(std::move(link)) {}

StreamQueue::~StreamQueue() {
  HIPPO_ASSERT(!thread_.joinable());
}

void StreamQueue::push(StreamOperation operation) {
  const std::scoped_lock lock(mutex_);
  if (stopping()) {
    throw Error({.status = Status::device_error,
                 .operation = "use a stream of",
                 .object = device_name_,
                 .detail = "the stream was destroyed"});
  }
  if (!thread_.joinable()) {
    start();
  }
  queue_.push_back(std::move(operation));
  ++pushed_;
  if (sleeping_) {
    arrived_.notify_one();
  }
}

void StreamQueue::start() {
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([self = shared_from_this()] { self->work(); });
  } catch (const std::system_error& error) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "start the thread of a stream of",
                 .object = device_name_,
                 .errno_value = error.code().value(),
                 .detail = {}});
  }
  thread_ended_ = false;
}

bool StreamQueue::idle() {
  const std::scoped_lock lock(mutex_);
  if (finished_.load(std::memory_order_acquire) != pushed_) {
    return false;
  }
  if (failure_.has_value()) {
    const Failure failure = *std::exchange(failure_, std::nullopt);
    failed_.store(false);
    throw Error(failure);
  }
  return true;
}

void StreamQueue::stop() noexcept {
  std::thread thread;
  bool ended = false;
  {
    std::unique_lock lock(mutex_);
    stopping_.store(true);
    arrived_.notify_all();
    if (!thread_.joinable()) {
      return;
    }
    // A function that destroys its own stream would wait for itself.
    if (thread_.get_id() != std::this_thread::get_id()) {
      ended = ended_.wait_for(lock, stop_timeout, [this] { return thread_ended_; });
    }
    thread = std::move(thread_);
  }
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
}

void StreamQueue::work() {
  static_cast<void>(pthread_setname_np(pthread_self(), "hippo-host"));
  // Sleeps of microseconds are of use only without the default slack of 50 us.
  static_cast<void>(prctl(PR_SET_TIMERSLACK, 1));
  while (!stopping()) {
    while (!batch_.empty() && !stopping()) {
      run(batch_.front());
      batch_.pop_front();
      finished_.fetch_add(1, std::memory_order_release);
    }
    std::unique_lock lock(mutex_);
    sleeping_ = true;
    arrived_.wait(lock, [this] { return stopping() || !queue_.empty(); });
    sleeping_ = false;
    if (!stopping()) {
      batch_.swap(queue_);
    }
  }
  drop_batch();
  {
    const std::scoped_lock lock(mutex_);
    batch_.swap(queue_);
  }
  drop_batch();
  const std::scoped_lock lock(mutex_);
  thread_ended_ = true;
  ended_.notify_all();
}

void StreamQueue::drop_batch() {
  const Failure why{.status = Status::cancelled,
                    .operation = "work on a stream of",
                    .object = device_name_,
                    .detail = "the stream was destroyed"};
  for (StreamOperation& operation : batch_) {
    if (const auto* const record = std::get_if<RecordOperation>(&operation)) {
      record->event->complete(record->ticket, why);
    }
  }
  const std::uint64_t count = batch_.size();
  batch_.clear();
  finished_.fetch_add(count, std::memory_order_release);
}

void StreamQueue::run(StreamOperation& operation) {
  if (failed_.load() && !std::holds_alternative<RecordOperation>(operation)) {
    return;
  }
  try {
    std::visit([this](auto& one) { this->run_one(one); }, operation);
  } catch (...) {
    const std::scoped_lock lock(mutex_);
    failure_ = current_failure();
    failed_.store(true);
  }
}

void StreamQueue::run_one(CopyOperation& copy) {
  const SimulatedLink::TimePoint end =
      link_ != nullptr ? link_->reserve(copy.direction, copy.size_bytes) : Clock::time_point::min();
  for (std::size_t at = 0; at < copy.size_bytes && !stopping(); at += copy_piece_bytes) {
    const std::size_t piece_bytes = std::min(copy_piece_bytes, copy.size_bytes - at);
    if (!copy.may_vanish) {
      std::memcpy(copy.to + at, copy.from + at, piece_bytes);
      continue;
    }
    const int errno_value = copy_vanishing_pages(copy.to + at, copy.from + at, piece_bytes);
    if (errno_value != 0) {
      const bool to_device = copy.direction == LinkDirection::to_device;
      throw Error({.status = Status::device_error,
                   .operation = to_device ? "copy to device" : "copy from device",
                   .object = device_name_,
                   .errno_value = errno_value,
                   .detail = "the registered pages are gone: was the file truncated?"});
    }
  }
  for (auto now = Clock::now(); now < end && !stopping(); now = Clock::now()) {
    std::this_thread::sleep_until(std::min(end, now + stop_latency));
  }
}

void StreamQueue::run_one(RecordOperation& record) {
  std::optional<Failure> failure;
  if (failed_.load()) {
    const std::scoped_lock lock(mutex_);
    failure = failure_;
  }
  record.event->complete(record.ticket, failure);
}

void StreamQueue::run_one(WaitOperation& wait) {
  while (!wait.event->reached(wait.ticket) && !stopping()) {
    wait.event->wait_briefly(wait.ticket, stop_latency);
  }
}

void StreamQueue::run_one(LaunchOperation& launch) {
  try {
    launch.function();
  } catch (const Error&) {
    throw;
  } catch (...) {
    throw Error({.status = Status::device_error,
                 .operation = "run a function on",
                 .object = device_name_,
                 .detail = current_failure().message()});
  }
}

void StreamQueue::run_one(WaitFlagOperation& wait) {
  for (int spins = 0; spins < flag_spins_max; ++spins) {
    if (flag_reached(wait.flag)) {
      return;
    }
  }
  auto sleep = flag_sleep_min;
  while (!flag_reached(wait.flag) && !stopping()) {
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 3 / 2, flag_sleep_max);
  }
}

}  // namespace hippogriff
