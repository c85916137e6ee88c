// The script of a faulty device.
#include "testing/device_faults.hpp"

#include <random>
#include <string>
#include <thread>
#include <utility>

namespace hippogriff {

namespace {

std::size_t index_of(DeviceOperation operation) {
  return static_cast<std::size_t>(operation);
}

bool can_fail_later(DeviceOperation operation) {
  return operation == DeviceOperation::copy_to_device ||
         operation == DeviceOperation::copy_to_host || operation == DeviceOperation::wait ||
         operation == DeviceOperation::launch;
}

bool is_stream_operation(DeviceOperation operation) {
  return can_fail_later(operation) || operation == DeviceOperation::record ||
         operation == DeviceOperation::wait_flag;
}

bool only_reports(DeviceOperation operation) {
  return operation == DeviceOperation::completed || operation == DeviceOperation::idle;
}

DeviceFaults::Action by_chance(const RandomDeviceFaults& random,
                               DeviceOperation operation,
                               std::uint64_t call) {
  if (only_reports(operation)) {
    return {};
  }
  std::seed_seq seeds{random.seed, random.seed >> 32U, std::uint64_t{index_of(operation)}, call};
  std::mt19937 engine(seeds);
  std::uniform_real_distribution<double> chance(0, 1);
  if (chance(engine) < random.failure_probability) {
    return {.kind = DeviceFaults::Action::Kind::fail, .failure = some_device_failure(operation)};
  }
  if (chance(engine) < random.later_failure_probability && can_fail_later(operation)) {
    return {.kind = DeviceFaults::Action::Kind::fail_later,
            .failure = some_device_failure(operation)};
  }
  if (chance(engine) < random.delay_probability) {
    std::uniform_int_distribution<std::int64_t> time(0, random.delay_max.count());
    return {.kind = DeviceFaults::Action::Kind::delay,
            .failure = {},
            .time = std::chrono::microseconds(time(engine))};
  }
  return {};
}

}  // namespace

std::string_view device_operation_name(DeviceOperation operation) {
  static constexpr std::array<std::string_view, device_operation_count> names = {"allocate",
                                                                                 "allocate pinned",
                                                                                 "register host",
                                                                                 "create stream",
                                                                                 "create event",
                                                                                 "borrow stream",
                                                                                 "copy to device",
                                                                                 "copy to host",
                                                                                 "record",
                                                                                 "wait",
                                                                                 "launch",
                                                                                 "wait flag",
                                                                                 "ask event",
                                                                                 "ask stream"};
  return names.at(index_of(operation));
}

Failure some_device_failure(DeviceOperation operation) {
  return {.status = Status::device_error,
          .operation = std::string(device_operation_name(operation)),
          .object = "faulty",
          .device_status = 999,
          .detail = "injected"};
}

void DeviceFaults::add(DeviceOperation operation,
                       std::uint64_t nth,
                       std::uint64_t times,
                       Action action) {
  HIPPO_ASSERT(nth > 0);
  const std::scoped_lock lock(mutex_);
  rules_.push_back({.operation = operation,
                    .first_call = calls_.at(index_of(operation)) + nth,
                    .times = times,
                    .action = std::move(action)});
}

void DeviceFaults::fail(DeviceOperation operation,
                        std::uint64_t nth,
                        const Failure& failure,
                        std::uint64_t times) {
  add(operation, nth, times, {.kind = Action::Kind::fail, .failure = failure});
}

void DeviceFaults::fail_later(DeviceOperation operation,
                              std::uint64_t nth,
                              const Failure& failure) {
  HIPPO_ASSERT(can_fail_later(operation));
  add(operation, nth, 1, {.kind = Action::Kind::fail_later, .failure = failure});
}

void DeviceFaults::delay(DeviceOperation operation,
                         std::uint64_t nth,
                         std::chrono::microseconds time,
                         std::uint64_t times) {
  add(operation, nth, times, {.kind = Action::Kind::delay, .failure = {}, .time = time});
}

void DeviceFaults::hold(DeviceOperation operation, std::uint64_t nth, std::uint64_t times) {
  HIPPO_ASSERT(is_stream_operation(operation));
  add(operation, nth, times, {.kind = Action::Kind::hold, .failure = {}});
}

void DeviceFaults::block(DeviceOperation operation) {
  const std::scoped_lock lock(mutex_);
  blocked_.at(index_of(operation)) = true;
}

void DeviceFaults::release_held() {
  {
    const std::scoped_lock lock(mutex_);
    ++releases_;
  }
  changed_.notify_all();
}

bool DeviceFaults::wait_until_unregistered(std::chrono::milliseconds timeout) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (outstanding().registrations != 0) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool DeviceFaults::wait_until_held(std::size_t count, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, timeout, [this, count] { return held_ >= count; });
}

void DeviceFaults::set_memory_bytes(std::optional<std::uint64_t> memory_bytes) {
  const std::scoped_lock lock(mutex_);
  memory_bytes_ = memory_bytes;
}

void DeviceFaults::randomise(const RandomDeviceFaults& random) {
  const std::scoped_lock lock(mutex_);
  random_ = random;
}

void DeviceFaults::clear() {
  {
    const std::scoped_lock lock(mutex_);
    rules_.clear();
    random_.reset();
    memory_bytes_.reset();
    blocked_.fill(false);
    calls_.fill(0);
    injected_ = 0;
  }
  release_held();
}

std::uint64_t DeviceFaults::calls(DeviceOperation operation) const {
  const std::scoped_lock lock(mutex_);
  return calls_.at(index_of(operation));
}

std::uint64_t DeviceFaults::injected() const {
  const std::scoped_lock lock(mutex_);
  return injected_;
}

OutstandingOnDevice DeviceFaults::outstanding() const {
  const std::scoped_lock lock(mutex_);
  return outstanding_;
}

std::optional<std::uint64_t> DeviceFaults::memory_bytes() const {
  const std::scoped_lock lock(mutex_);
  return memory_bytes_;
}

void DeviceFaults::count(std::int64_t OutstandingOnDevice::* what, std::int64_t change) {
  const std::scoped_lock lock(mutex_);
  outstanding_.*what += change;
}

DeviceFaults::Action DeviceFaults::next(DeviceOperation operation) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t call = ++calls_.at(index_of(operation));
  Action action;
  bool scripted = false;
  for (const Rule& rule : rules_) {
    if (rule.operation == operation && call >= rule.first_call &&
        call - rule.first_call < rule.times) {
      action = rule.action;
      scripted = true;
      break;
    }
  }
  if (!scripted && random_.has_value()) {
    action = by_chance(*random_, operation, call);
  }
  if (action.kind == Action::Kind::fail || action.kind == Action::Kind::fail_later) {
    ++injected_;
  }
  return action;
}

void DeviceFaults::wait_while_held(const std::shared_ptr<bool>& abandoned) {
  std::unique_lock lock(mutex_);
  const std::uint64_t releases = releases_;
  ++held_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return releases_ != releases || *abandoned; });
  --held_;
}

void DeviceFaults::wait_while_blocked(DeviceOperation operation) {
  std::unique_lock lock(mutex_);
  if (!blocked_.at(index_of(operation))) {
    return;
  }
  const std::uint64_t releases = releases_;
  ++held_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return releases_ != releases; });
  --held_;
}

void DeviceFaults::abandon(const std::shared_ptr<bool>& abandoned) {
  {
    const std::scoped_lock lock(mutex_);
    *abandoned = true;
  }
  changed_.notify_all();
}

}  // namespace hippogriff
