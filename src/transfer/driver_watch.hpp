// Notices when the driver of a device answers no call any more.
#pragma once

#include "device/device.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <thread>

namespace hippogriff {

// While it is on, it looks once a second whether a small call came back, which one thread of its
// own makes. When one has not for 30 looks, another thread, which makes no call of the driver, runs
// `stuck`. Looks are counted instead of seconds, so that a process that was stopped meanwhile is
// not mistaken. Before it is first on there is no thread; while it is off they sleep. Thread-safe.
class DriverWatch {
 public:
  // 30 s: half of device_timeout, so that no wait for a copy or a slot gives up before.
  static constexpr int looks_max = 30;

  DriverWatch(std::shared_ptr<Device> device, std::function<void()> stuck);
  // Joins the threads, but leaves a call that is stuck to itself: its thread keeps the device.
  ~DriverWatch();
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;

  // Where no thread can be had nothing is watched, until it is turned on again.
  void turn_on() noexcept;
  void turn_off() noexcept;

  // For tests, before it is first on.
  void look_every(std::chrono::milliseconds interval) { interval_ = interval; }

 private:
  struct Shared;

  void watch();
  void ask();
  static void answer(Shared& shared);

  const std::function<void()> stuck_;
  const std::shared_ptr<Shared> shared_;
  std::chrono::milliseconds interval_{1000};
  std::thread watcher_;
  std::thread asker_;  // started by the first look
};

}  // namespace hippogriff
