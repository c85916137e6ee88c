// Carries the transfers of one device: threads that run lanes, the pinbuffer and the parking they
// share, and a watcher for transfers whose device is not ready yet.
#pragma once

#include "transfer/lanes.hpp"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hippogriff {

class ExitHold;

struct EngineOptions {
  std::size_t pinbuffer_bytes = std::size_t{256} << 20;
  std::uint64_t parking_bytes = 0;
  std::size_t threads_max = 16;
  // Once so much was read from the page cache for long sends, mapping is made possible.
  std::uint64_t mapped_after_bytes = std::uint64_t{8} << 30;
  Trace* trace = nullptr;
};

// Thread-safe. Threads start when work comes and stay. One class of lock: mutex_ guards the queue,
// the task counts of all transfers and the watch list; no device or file call is made under it.
class Engine {
 public:
  Engine(std::shared_ptr<Device> device, std::shared_ptr<Storage> storage, EngineOptions options);
  // Only after stop() said true.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Makes what the first transfers would wait for, beside them: some threads, some pinned memory, a
  // stream for receives, io_uring's first ring, and what `also` makes. Where any of that fails,
  // they make it themselves, and say why they cannot. At most once.
  void begin_head_start(std::function<void()> also) noexcept;

  // Begins to carry a transfer. gate_open, after and memory_deadline must be set.
  void start(const std::shared_ptr<Transfer>& transfer);

  // Cancels everything and joins the threads. False when some would not end within `patience`: the
  // engine must then be left to the end of the process, since they use it.
  bool stop(std::chrono::milliseconds patience);

  // Device memory may have become free: looks again now.
  void memory_freed();

  // Sends that wait for this device's memory.
  [[nodiscard]] bool sends_wait_for_memory() const;

  // Copies to the device since the beginning.
  [[nodiscard]] CopyCounts copies() const { return to_device_.counts(); }

  [[nodiscard]] std::uint32_t busy_channels() const { return busy_.load(); }

  [[nodiscard]] std::uint64_t pinned_bytes() const { return pinbuffer_.allocated_bytes(); }

  // Why copies go through memory that is not pinned; "" when they do not.
  [[nodiscard]] std::string pinning_refusal() const { return pinbuffer_.refusal(); }

  [[nodiscard]] Parking& parking() { return parking_; }

  [[nodiscard]] std::uint64_t parked_bytes() const { return parking_.used_bytes(); }

  [[nodiscard]] std::uint64_t parking_budget_bytes() const { return parking_.budget_bytes(); }

 private:
  struct Task {
    std::shared_ptr<Transfer> transfer;
    Lane lane = Lane::buffered;
  };

  // Of the task that a thread runs.
  struct Turn {
    bool copying = false;
    Clock::time_point begin;
  };

  // A worker begins as one that is idle. `ahead`: no task waits for it, so it calls the driver for
  // the first time before one does, and is held until then.
  void work(std::size_t index, std::shared_ptr<const ExitHold> ahead);
  [[nodiscard]] bool should_yield(const Turn& turn) const;
  static bool copies(const Task& task);
  [[nodiscard]] std::size_t copying_max() const;
  std::list<Task>::iterator startable_locked();
  std::list<Task> take_locked(std::list<Task>::iterator next);
  void leave_locked(const Task& task);
  bool wait_for_task(bool counted);
  void refuse_task(const Failure& failure);
  void run_tasks(LaneContext& context);
  void watch();
  bool look_at_watched(std::unique_lock<std::mutex>& lock);
  bool open_gate(Transfer& transfer);
  static void show_waiting(const Transfer& transfer);
  void add_thread_locked(std::function<void()> work);
  void prepare_for_more(const Transfer& transfer) noexcept;
  void make_head_start(const std::function<void()>& also);
  void make_workers() noexcept;
  void spawn_locked(std::shared_ptr<const ExitHold> ahead = nullptr);
  void enqueue_locked(const std::shared_ptr<Transfer>& transfer, Lane lane, std::uint32_t count);
  void push_locked(const std::shared_ptr<Transfer>& transfer, Lane lane);
  void enqueue_plan_locked(const std::shared_ptr<Transfer>& transfer);
  // Wakes threads for what was queued. Nothing when settle() has given the lock back.
  void wake_and_unlock(std::unique_lock<std::mutex>& lock);
  void task_ended(const std::shared_ptr<Transfer>& transfer);
  void settle(const std::shared_ptr<Transfer>& transfer, std::unique_lock<std::mutex>& lock);
  void rescue_locked(const std::shared_ptr<Transfer>& transfer);
  void join_another_locked(Lane lane);
  static std::uint64_t left_for_each(const Transfer& transfer, Lane lane);
  void finalize(Transfer& transfer);
  void prepare_to_map(const Transfer& transfer);

  const EngineOptions options_;
  const std::shared_ptr<Device> device_;
  const std::shared_ptr<Storage> storage_;
  Pinbuffer pinbuffer_;
  Parking parking_;
  CopyStream to_device_;
  SpareStream spare_stream_;
  mutable std::mutex mutex_;
  std::condition_variable task_queued_;
  std::condition_variable watch_again_;
  std::condition_variable thread_ended_;
  std::list<Task> queue_;
  std::size_t copying_ = 0;       // tasks that run and copies() counts
  std::size_t copying_wide_ = 0;  // channels of the widest plan of those since one was alone
  std::atomic<std::size_t> queued_{0};
  std::atomic<std::uint32_t> busy_{0};
  std::atomic<std::uint64_t> mappable_bytes_{0};    // that were read, and might have been mapped
  std::vector<std::shared_ptr<Transfer>> carried_;  // started and not finished
  std::vector<std::shared_ptr<Transfer>> watched_;
  std::vector<std::thread> threads_;
  std::size_t workers_ = 0;
  std::atomic<std::size_t> idle_threads_{0};
  std::size_t to_wake_ = 0;
  std::size_t ended_threads_ = 0;
  bool watcher_started_ = false;
  std::atomic<std::uint32_t> short_sends_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace hippogriff
