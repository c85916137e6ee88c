// Flags and allocations of one device.
#include "transfer/device_state.hpp"

#include "transfer/device_wait.hpp"

#include <atomic>
#include <iterator>

namespace hippogriff {

namespace {

constexpr const char* order_a_stream = "order a stream after a transfer";

void store(HostFlag flag) {
  std::atomic_ref(*flag.word).store(flag.value, std::memory_order_release);
}

}  // namespace

StreamFlags::StreamFlags(std::shared_ptr<Device> device)
    : device_(std::move(device)), watch_(device_, [this] { fail_holders(); }) {}

HostFlag StreamFlags::take(const std::shared_ptr<Transfer>& holder) {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) {
    const DeviceScope scope(*device_);
    // Value-initialised by the kernel: the words start at zero.
    memory_ =
        reinterpret_cast<std::uint32_t*>(device_->allocate_pinned(words * sizeof(std::uint32_t)));
    for (std::size_t index = 0; index < words; ++index) {
      free_.push_back(memory_ + index);
    }
  }
  if (free_.empty()) {
    throw Error({.status = Status::busy,
                 .operation = order_a_stream,
                 .object = device_->info().name,
                 .detail = "1024 such transfers are in flight"});
  }
  std::uint32_t* word = free_.back();
  const HostFlag flag{word, std::atomic_ref(*word).load(std::memory_order_relaxed) + 1};
  held_.emplace(word, Held{flag, holder});
  free_.pop_back();
  watch_.turn_on();
  return flag;
}

void StreamFlags::raise(HostFlag flag) {
  store(flag);
  const std::lock_guard lock(mutex_);
  free_.insert(free_.begin(), flag.word);
  held_.erase(flag.word);
  if (held_.empty()) {
    watch_.turn_off();
  }
}

// The words stay with their transfers until these have ended.
void StreamFlags::fail_holders() {
  const std::lock_guard lock(mutex_);
  for (const auto& [word, held] : held_) {
    if (const auto holder = held.holder.lock()) {
      holder->give_up({.status = Status::device_error,
                       .operation = order_a_stream,
                       .object = device_->info().name,
                       .detail = "the driver has answered no call for 30 s, as when it loads a "
                                 "kernel that was put behind the waiting stream: run the kernel "
                                 "once before, or wait for the transfer instead"});
    }
    store(held.flag);
  }
  held_.clear();
  watch_.turn_off();
}

DeviceState::DeviceState(std::shared_ptr<Device> the_device,
                         const std::shared_ptr<Storage>& storage,
                         const EngineOptions& options)
    : device(std::move(the_device)),
      flags(device),
      small(device, options.trace),
      checksum(device, device_timeout),
      engine(std::make_unique<Engine>(device, storage, options)) {}

DeviceAddress DeviceState::allocate(std::size_t size_bytes) {
  const DeviceScope scope(*device);
  const DeviceAddress address = device->allocate(size_bytes);
  keep(address, size_bytes);
  return address;
}

void DeviceState::keep(DeviceAddress address, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  allocations_[address.value] = size_bytes;
}

bool DeviceState::free(DeviceAddress address) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(address.value);
    if (found == allocations_.end()) {
      return false;
    }
    if (in_flight.uses(address, found->second)) {
      throw Error({.status = Status::busy,
                   .operation = "free device memory",
                   .object = device->info().name,
                   .detail = "a transfer in flight uses it; wait for that one first"});
    }
    allocations_.erase(found);
  }
  const DeviceScope scope(*device);
  device->release(address);
  engine->memory_freed();
  return true;
}

std::optional<AllocationInfo> DeviceState::allocation_of(DeviceAddress address) const {
  const std::lock_guard lock(mutex_);
  const auto after = allocations_.upper_bound(address.value);
  if (after == allocations_.begin()) {
    return std::nullopt;
  }
  const auto& [base, size_bytes] = *std::prev(after);
  return address.value - base < size_bytes ? std::optional(AllocationInfo{{base}, size_bytes})
                                           : std::nullopt;
}

std::uint64_t DeviceState::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t bytes = 0;
  for (const auto& allocation : allocations_) {
    bytes += allocation.second;
  }
  return bytes;
}

void* DeviceState::create_caller_stream() {
  const DeviceScope scope(*device);
  auto stream = device->create_stream();
  void* handle = stream->native_handle();
  const std::lock_guard lock(mutex_);
  caller_streams_[handle] = std::move(stream);
  return handle;
}

bool DeviceState::destroy_caller_stream(void* handle) {
  std::unique_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    const auto found = caller_streams_.find(handle);
    if (found == caller_streams_.end()) {
      return false;
    }
    stream = std::move(found->second);
    caller_streams_.erase(found);
  }
  const DeviceScope scope(*device);
  static_cast<void>(drain(*stream));  // what hangs longer is left to itself
  stream.reset();
  return true;
}

void DeviceState::free_all() {
  const std::lock_guard lock(mutex_);
  const DeviceScope scope(*device);
  caller_streams_.clear();
  for (const auto& allocation : allocations_) {
    device->release({allocation.first});
  }
  allocations_.clear();
}

}  // namespace hippogriff
