// The work of a host device's stream: a queue of operations and the thread that runs them.
#pragma once

#include "device/device.hpp"
#include "device/host_event.hpp"
#include "device/host_link.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>

namespace hippogriff {

struct CopyOperation {
  std::byte* to;
  const std::byte* from;
  std::size_t size_bytes;
  LinkDirection direction;
  bool may_vanish;  // host side in registered pages of a file
};

struct RecordOperation {
  std::shared_ptr<EventState> event;
  std::uint64_t ticket;
};

struct WaitOperation {
  std::shared_ptr<EventState> event;
  std::uint64_t ticket;
};

struct LaunchOperation {
  std::function<void()> function;
};

struct WaitFlagOperation {
  HostFlag flag;
};

using StreamOperation =
    std::variant<CopyOperation, RecordOperation, WaitOperation, LaunchOperation, WaitFlagOperation>;

// The queue and its thread, started at the first operation. Thread-safe. After an operation failed,
// the copies, waits and functions behind it are dropped and records carry the failure, until
// idle() has thrown it once the queue is empty; then the queue works again.
class StreamQueue : public std::enable_shared_from_this<StreamQueue> {
 public:
  // `link` null: copies take the time they take.
  StreamQueue(std::string device_name, std::shared_ptr<SimulatedLink> link);
  ~StreamQueue();
  StreamQueue(const StreamQueue&) = delete;
  StreamQueue& operator=(const StreamQueue&) = delete;
  StreamQueue(StreamQueue&&) = delete;
  StreamQueue& operator=(StreamQueue&&) = delete;

  // Throws Error(device_error) after stop, Error(out_of_host_memory) without a thread.
  void push(StreamOperation operation);
  [[nodiscard]] bool idle();
  // Finishes the function or piece of a copy at hand, drops the rest (records complete with
  // `cancelled`), and ends the thread. A function that goes on for 5 s more is left behind on its
  // thread, which then ends with it.
  void stop() noexcept;

 private:
  void start();
  void work();
  void run(StreamOperation& operation);
  void run_one(CopyOperation& copy);
  void run_one(RecordOperation& record);
  void run_one(WaitOperation& wait);
  void run_one(LaunchOperation& launch);
  void run_one(WaitFlagOperation& wait);
  void drop_batch();

  [[nodiscard]] bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  const std::string device_name_;
  const std::shared_ptr<SimulatedLink> link_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable ended_;
  std::deque<StreamOperation> queue_;
  std::deque<StreamOperation> batch_;  // the thread's own: making it there could throw
  std::thread thread_;
  bool sleeping_ = false;
  bool thread_ended_ = true;
  std::uint64_t pushed_ = 0;
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::optional<Failure> failure_;
};

}  // namespace hippogriff
