// Registers windows of files that arrays' devices read, beside what their controllers do.
#pragma once

#include "array/file_windows.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {

// One thread for all arrays of a controller: drivers register one window after the other anyway.
// Thread-safe.
class WindowRegistrar {
 public:
  WindowRegistrar() = default;
  ~WindowRegistrar();
  WindowRegistrar(const WindowRegistrar&) = delete;
  WindowRegistrar& operator=(const WindowRegistrar&) = delete;

  // Registers these from now on, as long as they are.
  void watch(const std::shared_ptr<FileWindows>& windows);

  // One of them has a window that is worth registering. Cheap where that is known.
  void wake() {
    if (!asked_.load(std::memory_order_relaxed)) {
      ask();
    }
  }

 private:
  void ask();
  void run() noexcept;
  [[nodiscard]] bool wait();
  [[nodiscard]] bool pause();
  [[nodiscard]] bool try_one();
  [[nodiscard]] std::vector<std::shared_ptr<FileWindows>> watched();

  // Set under the mutex, for who waits on `changed_`.
  std::atomic<bool> asked_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::weak_ptr<FileWindows>> windows_;
  std::thread thread_;
};

}  // namespace hippogriff::ondemand
