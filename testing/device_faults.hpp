// What goes wrong on a faulty device, and when: a script that a test sets, or chance by a seed.
#pragma once

#include "base/error.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace hippogriff {

enum class DeviceOperation : std::uint8_t {
  allocate,
  allocate_pinned,
  register_host,
  create_stream,
  create_event,
  borrow_stream,
  copy_to_device,
  copy_to_host,
  record,
  wait,
  launch,
  wait_flag,
  completed,  // Event::completed
  idle,       // Stream::idle
};

inline constexpr std::size_t device_operation_count = 14;
std::string_view device_operation_name(DeviceOperation operation);

// How often each kind of fault comes by itself, per call, from 0 to 1. The same seed gives the nth
// call of an operation the same fault, whatever other threads do. completed and idle are left
// alone: they are asked a varying number of times.
struct RandomDeviceFaults {
  std::uint64_t seed = 1;
  double failure_probability = 0;        // the call throws
  double later_failure_probability = 0;  // of copies and launches
  double delay_probability = 0;
  std::chrono::microseconds delay_max{200};
};

// What the code under test has taken from the device and not given back.
struct OutstandingOnDevice {
  std::int64_t allocations = 0;
  std::int64_t pinned = 0;
  std::int64_t registrations = 0;
  std::int64_t streams = 0;
  std::int64_t events = 0;

  friend bool operator==(const OutstandingOnDevice&, const OutstandingOnDevice&) = default;
};

// Calls are counted per operation from 1 on since the last clear(). Thread-safe. Share it with
// make_faulty_device and keep it to script the device while it is in use.
class DeviceFaults {
 public:
  // Calls `nth` to `nth + times - 1` from now on throw (1: the next).
  void fail(DeviceOperation operation,
            std::uint64_t nth,
            const Failure& failure,
            std::uint64_t times = 1);
  // A copy, wait or launch is taken but not carried out, nor what follows it on its stream; the
  // failure comes from events recorded behind it, and once from idle().
  void fail_later(DeviceOperation operation, std::uint64_t nth, const Failure& failure);
  // Stream operations take the time on the stream; all others before they return.
  void delay(DeviceOperation operation,
             std::uint64_t nth,
             std::chrono::microseconds time,
             std::uint64_t times = 1);
  // A stream operation that does not begin before release_held() or the end of its stream.
  void hold(DeviceOperation operation, std::uint64_t nth, std::uint64_t times = 1);
  void release_held();
  // Calls of the operation come back after the next release_held() only, until clear(): a driver
  // that is stuck. They count as held.
  void block(DeviceOperation operation);
  // Waits until so many operations are held. False when the timeout ends first.
  [[nodiscard]] bool wait_until_held(std::size_t count, std::chrono::milliseconds timeout);
  // Waits until nothing is registered: transfers close windows a moment after their end.
  [[nodiscard]] bool wait_until_unregistered(std::chrono::milliseconds timeout) const;
  // The device refuses beyond this from now on; nothing: only the wrapped device's limit counts.
  void set_memory_bytes(std::optional<std::uint64_t> memory_bytes);
  void randomise(const RandomDeviceFaults& random);
  // Forgets script, chance, memory limit and counts, and releases what is held.
  void clear();

  [[nodiscard]] std::uint64_t calls(DeviceOperation operation) const;
  [[nodiscard]] std::uint64_t injected() const;  // failures of both kinds so far
  [[nodiscard]] OutstandingOnDevice outstanding() const;

  // The rest is for the faulty device.
  struct Action {
    enum class Kind : std::uint8_t { none, fail, fail_later, delay, hold };
    Kind kind = Kind::none;
    Failure failure;
    std::chrono::microseconds time{0};
  };

  [[nodiscard]] Action next(DeviceOperation operation);
  // Blocks a thread of the device until release_held() or until `*abandoned`.
  void wait_while_held(const std::shared_ptr<bool>& abandoned);
  void abandon(const std::shared_ptr<bool>& abandoned);
  void wait_while_blocked(DeviceOperation operation);
  [[nodiscard]] std::optional<std::uint64_t> memory_bytes() const;
  void count(std::int64_t OutstandingOnDevice::* what, std::int64_t change);

 private:
  struct Rule {
    DeviceOperation operation = DeviceOperation::allocate;
    std::uint64_t first_call = 0;
    std::uint64_t times = 0;
    Action action;
  };

  void add(DeviceOperation operation, std::uint64_t nth, std::uint64_t times, Action action);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rule> rules_;
  std::array<std::uint64_t, device_operation_count> calls_{};
  std::uint64_t injected_ = 0;
  std::optional<RandomDeviceFaults> random_;
  std::optional<std::uint64_t> memory_bytes_;
  std::array<bool, device_operation_count> blocked_{};
  std::uint64_t releases_ = 0;
  std::size_t held_ = 0;
  OutstandingOnDevice outstanding_;
};

// A failure as a device reports it, for tests that do not care which.
Failure some_device_failure(DeviceOperation operation);

}  // namespace hippogriff
