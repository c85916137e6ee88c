// Events of the host device: what streams and waiters share.
#pragma once

#include "device/device.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

namespace hippogriff {

// How far an event's records have come. Each record takes the next ticket; the stream that reaches
// it completes the ticket. Outlives the event while streams still hold it. Thread-safe.
class EventState {
 public:
  [[nodiscard]] std::uint64_t next_ticket() { return recorded_.fetch_add(1) + 1; }

  [[nodiscard]] std::uint64_t last_ticket() const { return recorded_.load(); }

  void complete(std::uint64_t ticket, const std::optional<Failure>& failure);

  [[nodiscard]] bool reached(std::uint64_t ticket) const { return completed_.load() >= ticket; }

  // Waits until the ticket is complete or the time is over, whichever comes first.
  void wait_briefly(std::uint64_t ticket, std::chrono::microseconds time);
  // Throws the failure of the last completed record, if it had one.
  void throw_if_failed() const;

 private:
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Failure> failure_;
};

class HostEvent final : public Event {
 public:
  HostEvent() : state_(std::make_shared<EventState>()) {}

  [[nodiscard]] bool completed() override;

  [[nodiscard]] const std::shared_ptr<EventState>& state() const { return state_; }

 private:
  std::shared_ptr<EventState> state_;
};

}  // namespace hippogriff
