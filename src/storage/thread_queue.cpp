// IoQueue over threads: for kernels and containers without io_uring.
#include "storage/thread_queue.hpp"

#include "storage/descriptor.hpp"
#include "storage/queue_request.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t thread_count_max = 8;

// What the queue and its threads share.
struct Shared {
  std::mutex mutex;
  std::condition_variable work_or_stop;
  std::condition_variable completed;
  std::deque<CheckedRequest> waiting;
  std::deque<IoCompletion> finished;
  std::size_t running = 0;
  std::size_t idle_threads = 0;
  bool stop = false;
};

std::int64_t carry_out(const CheckedRequest& request) {
  const auto offset = static_cast<off_t>(request.offset);
  const iovec whole{request.memory, request.size_bytes};
  const std::span<const iovec> pieces =
      request.pieces.empty() ? std::span(&whole, 1) : std::span(request.pieces);
  const auto piece_count = static_cast<int>(pieces.size());
  const ssize_t count = retry_interrupted([&] {
    return request.kind == IoRequest::Kind::read
               ? ::preadv(request.fd, pieces.data(), piece_count, offset)
               : ::pwritev(request.fd, pieces.data(), piece_count, offset);
  });
  return count < 0 ? -std::int64_t{errno} : std::int64_t{count};
}

void serve(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  for (;;) {
    ++shared.idle_threads;
    shared.work_or_stop.wait(lock, [&] { return shared.stop || !shared.waiting.empty(); });
    --shared.idle_threads;
    if (shared.stop) {
      return;
    }
    const CheckedRequest request = std::move(shared.waiting.front());
    shared.waiting.pop_front();
    ++shared.running;
    lock.unlock();
    const std::int64_t result = carry_out(request);
    lock.lock();
    --shared.running;
    shared.finished.push_back({request.tag, result});
    shared.completed.notify_one();
  }
}

// Blocks signals for a scope, so that threads started in it never run the program's handlers.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }

  ~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;
  SignalBlock(SignalBlock&&) = delete;
  SignalBlock& operator=(SignalBlock&&) = delete;

 private:
  sigset_t before_{};
};

class ThreadQueue final : public IoQueue {
 public:
  explicit ThreadQueue(std::size_t depth) : depth_(depth) {}

  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;
  ThreadQueue(ThreadQueue&&) = delete;
  ThreadQueue& operator=(ThreadQueue&&) = delete;
  ~ThreadQueue() override;

  void submit(const IoRequest& request) override;
  std::size_t reap(std::span<IoCompletion> completions, std::chrono::nanoseconds timeout) override;

  [[nodiscard]] std::size_t in_flight() const override { return in_flight_; }

 private:
  void add_thread();

  const std::size_t depth_;
  std::size_t in_flight_ = 0;
  Shared shared_;
  std::vector<std::thread> threads_;
};

void ThreadQueue::add_thread() {
  const SignalBlock block;
  try {
    threads_.emplace_back(serve, std::ref(shared_));
  } catch (const std::system_error& error) {
    // Fewer threads than wished are enough, none is not.
    if (threads_.empty()) {
      throw_io("start a thread", "I/O queue", no_offset, error.code().value());
    }
  }
}

void ThreadQueue::submit(const IoRequest& request) {
  CheckedRequest checked = check_request(request, in_flight_, depth_);
  bool needs_thread = false;
  {
    const std::lock_guard lock(shared_.mutex);
    needs_thread = shared_.idle_threads <= shared_.waiting.size();
  }
  if (needs_thread && threads_.size() < std::min(depth_, thread_count_max)) {
    add_thread();
  }
  {
    const std::lock_guard lock(shared_.mutex);
    shared_.waiting.push_back(std::move(checked));
  }
  ++in_flight_;
  shared_.work_or_stop.notify_one();
}

std::size_t ThreadQueue::reap(std::span<IoCompletion> completions,
                              std::chrono::nanoseconds timeout) {
  if (completions.empty() || in_flight_ == 0) {
    return 0;
  }
  std::unique_lock lock(shared_.mutex);
  shared_.completed.wait_until(
      lock, deadline_after(timeout), [&] { return !shared_.finished.empty(); });
  const std::size_t count = std::min(completions.size(), shared_.finished.size());
  const auto end = shared_.finished.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(shared_.finished.begin(), end, completions.begin());
  shared_.finished.erase(shared_.finished.begin(), end);
  in_flight_ -= count;
  return count;
}

ThreadQueue::~ThreadQueue() {
  std::unique_lock lock(shared_.mutex);
  shared_.stop = true;
  shared_.waiting.clear();
  shared_.work_or_stop.notify_all();
  while (!shared_.completed.wait_for(
      lock, queue_close_patience, [&] { return shared_.running == 0; })) {
    complain_of_drive(shared_.running);
  }
  lock.unlock();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

}  // namespace

std::unique_ptr<IoQueue> make_thread_queue(std::size_t depth) {
  return std::make_unique<ThreadQueue>(depth);
}

}  // namespace hippogriff
