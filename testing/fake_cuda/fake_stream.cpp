// The thread behind a stream of the fake driver.
#include "testing/fake_cuda/fake_stream.hpp"

#include <chrono>
#include <utility>

namespace fake_cuda {

void Stream::push(Work work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    ++pending_;
  }
  changed_.notify_one();
}

void Stream::stop() {
  thread_.request_stop();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Stream::run(const std::stop_token& stop) {
  while (true) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !queue_.empty(); })) {
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    if (stop.stop_requested()) {
      return;
    }
    work(stop);
    work = nullptr;
    --pending_;
  }
}

void poll(const std::stop_token& stop, const std::function<bool()>& done) {
  while (!done() && !stop.stop_requested()) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace fake_cuda
