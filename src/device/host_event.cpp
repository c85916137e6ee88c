// Events of the host device.
#include "device/host_event.hpp"

namespace hippogriff {

void EventState::complete(std::uint64_t ticket, const std::optional<Failure>& failure) {
  {
    const std::scoped_lock lock(mutex_);
    if (ticket <= completed_.load()) {
      return;
    }
    failure_ = failure;
    failed_.store(failure.has_value());
    completed_.store(ticket);
  }
  changed_.notify_all();
}

void EventState::wait_briefly(std::uint64_t ticket, std::chrono::microseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this, ticket] { return reached(ticket); });
}

void EventState::throw_if_failed() const {
  if (!failed_.load()) {
    return;
  }
  const std::scoped_lock lock(mutex_);
  if (failure_.has_value()) {
    throw Error(*failure_);
  }
}

bool HostEvent::completed() {
  if (!state_->reached(state_->last_ticket())) {
    return false;
  }
  state_->throw_if_failed();
  return true;
}

}  // namespace hippogriff
