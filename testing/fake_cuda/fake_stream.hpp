// Streams of the fake driver: a thread each, doing work in order.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace fake_cuda {

// A point in a stream's work.
struct Marker {
  std::atomic<bool> reached{false};
};

struct Event {
  // Empty: never recorded, or with no work before it. Guarded by the state's lock.
  std::vector<std::shared_ptr<Marker>> before;

  [[nodiscard]] bool reached() const {
    return std::all_of(
        before.begin(), before.end(), [](const auto& marker) { return marker->reached.load(); });
  }
};

// Work may wait, asking `stop` whether to give up.
class Stream {
 public:
  using Work = std::function<void(const std::stop_token& stop)>;

  Stream() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  void push(Work work);

  [[nodiscard]] bool idle() const { return pending_ == 0; }

  // Ends the thread; work that has not run is dropped.
  void stop();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Work> queue_;
  std::atomic<std::uint64_t> pending_{0};
  std::jthread thread_;
};

// Polls until `done` or until asked to stop.
void poll(const std::stop_token& stop, const std::function<bool()>& done);

}  // namespace fake_cuda
