// Checks and queues the operations of the host device's streams.
#include "device/host_stream.hpp"

#include <utility>

namespace hippogriff {

namespace {

std::byte* pointer(DeviceAddress address) {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address.value));
}

HostEvent& host_event(Event& event, const std::string& device_name) {
  auto* const ours = dynamic_cast<HostEvent*>(&event);
  if (ours == nullptr) {
    throw_invalid("use an event on a stream of " + device_name, "the event is another device's");
  }
  return *ours;
}

}  // namespace

void StreamRegistry::add(const std::shared_ptr<StreamQueue>& queue) {
  const std::scoped_lock lock(mutex_);
  queues_.insert_or_assign(queue.get(), queue);
}

void StreamRegistry::remove(const StreamQueue* queue) noexcept {
  const std::scoped_lock lock(mutex_);
  queues_.erase(queue);
}

std::shared_ptr<StreamQueue> StreamRegistry::find(void* handle) const {
  const std::scoped_lock lock(mutex_);
  const auto found = queues_.find(handle);
  return found == queues_.end() ? nullptr : found->second.lock();
}

HostStream::HostStream(HostStreamContext context,
                       std::shared_ptr<StreamQueue> queue,
                       void* native_handle,
                       Ownership ownership)
    : context_(std::move(context)),
      queue_(std::move(queue)),
      native_handle_(native_handle),
      ownership_(ownership) {}

HostStream::~HostStream() {
  if (ownership_ == Ownership::owned) {
    context_.registry->remove(queue_.get());
    queue_->stop();
  }
}

void HostStream::check_range(const char* operation,
                             DeviceAddress address,
                             std::size_t size_bytes) const {
  const auto allocation = context_.memory->find(address);
  const bool fits =
      allocation.has_value() ? size_bytes <= allocation->room_from(address) : !address.is_null();
  if (!fits) {
    throw Error({.status = Status::device_error,
                 .operation = operation,
                 .object = context_.device_name,
                 .detail = std::to_string(size_bytes) + " bytes leave the allocation"});
  }
}

void HostStream::copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) {
  if (size_bytes == 0) {
    return;
  }
  check_range("copy to device", to, size_bytes);
  queue_->push(CopyOperation{.to = pointer(to),
                             .from = from,
                             .size_bytes = size_bytes,
                             .direction = LinkDirection::to_device,
                             .may_vanish = context_.pages->is_registered(from)});
}

void HostStream::copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) {
  if (size_bytes == 0) {
    return;
  }
  check_range("copy from device", from, size_bytes);
  queue_->push(CopyOperation{.to = to,
                             .from = pointer(from),
                             .size_bytes = size_bytes,
                             .direction = LinkDirection::to_host,
                             .may_vanish = context_.pages->is_registered(to)});
}

void HostStream::record(Event& event) {
  const std::shared_ptr<EventState>& state = host_event(event, context_.device_name).state();
  const std::uint64_t ticket = state->next_ticket();
  try {
    queue_->push(RecordOperation{state, ticket});
  } catch (...) {
    // The event must not wait for a record that no stream has.
    state->complete(ticket, current_failure());
    throw;
  }
}

void HostStream::wait(Event& event) {
  const std::shared_ptr<EventState>& state = host_event(event, context_.device_name).state();
  const std::uint64_t ticket = state->last_ticket();
  if (!state->reached(ticket)) {
    queue_->push(WaitOperation{state, ticket});
  }
}

void HostStream::launch(std::function<void()> function) {
  if (!function) {
    throw_invalid("launch on a stream of " + context_.device_name, "the function is empty");
  }
  queue_->push(LaunchOperation{std::move(function)});
}

void HostStream::wait_flag(HostFlag flag) {
  if (flag.word == nullptr) {
    throw_invalid("wait for a flag on a stream of " + context_.device_name, "its word is null");
  }
  queue_->push(WaitFlagOperation{flag});
}

bool HostStream::idle() {
  return queue_->idle();
}

}  // namespace hippogriff
