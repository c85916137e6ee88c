// The faulty device, its streams and its events.
#include "testing/faulty_device.hpp"

#include "base/size.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace hippogriff {

namespace {

using Action = DeviceFaults::Action;

// Counts something of the device for as long as it lives.
class Counted {
 public:
  Counted(std::shared_ptr<DeviceFaults> faults, std::int64_t OutstandingOnDevice::* what)
      : faults_(std::move(faults)), what_(what) {
    faults_->count(what_, 1);
  }

  ~Counted() { faults_->count(what_, -1); }

  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  Counted(Counted&&) = delete;
  Counted& operator=(Counted&&) = delete;

 private:
  const std::shared_ptr<DeviceFaults> faults_;
  std::int64_t OutstandingOnDevice::* const what_;
};

// For calls that are not queued on a stream: fails or takes its time before it returns.
void obey(DeviceFaults& faults, DeviceOperation operation) {
  faults.wait_while_blocked(operation);
  const Action action = faults.next(operation);
  if (action.kind == Action::Kind::fail) {
    throw Error(action.failure);
  }
  if (action.kind == Action::Kind::delay) {
    std::this_thread::sleep_for(action.time);
  }
}

class FaultyEvent final : public Event {
 public:
  FaultyEvent(std::unique_ptr<Event> inner, std::shared_ptr<DeviceFaults> faults)
      : counted_(faults, &OutstandingOnDevice::events),
        faults_(std::move(faults)),
        inner_(std::move(inner)) {}

  [[nodiscard]] bool completed() override {
    obey(*faults_, DeviceOperation::completed);
    if (!inner_->completed()) {
      return false;
    }
    const std::scoped_lock lock(mutex_);
    if (failure_.has_value()) {
      throw Error(*failure_);
    }
    return true;
  }

  [[nodiscard]] Event& inner() { return *inner_; }

  void set_failure(const std::optional<Failure>& failure) {
    const std::scoped_lock lock(mutex_);
    failure_ = failure;
  }

 private:
  const Counted counted_;
  const std::shared_ptr<DeviceFaults> faults_;
  const std::unique_ptr<Event> inner_;
  std::mutex mutex_;
  std::optional<Failure> failure_;  // of the work before the last record
};

FaultyEvent& faulty(Event& event) {
  auto* const ours = dynamic_cast<FaultyEvent*>(&event);
  if (ours == nullptr) {
    throw_invalid("use an event on a faulty stream", "the event is another device's");
  }
  return *ours;
}

class FaultyStream final : public Stream {
 public:
  FaultyStream(std::unique_ptr<Stream> inner, std::shared_ptr<DeviceFaults> faults)
      : counted_(faults, &OutstandingOnDevice::streams),
        faults_(std::move(faults)),
        inner_(std::move(inner)) {}

  ~FaultyStream() override { faults_->abandon(abandoned_); }

  FaultyStream(const FaultyStream&) = delete;
  FaultyStream& operator=(const FaultyStream&) = delete;
  FaultyStream(FaultyStream&&) = delete;
  FaultyStream& operator=(FaultyStream&&) = delete;

  void copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) override {
    if (takes(DeviceOperation::copy_to_device)) {
      inner_->copy_to_device(to, from, size_bytes);
    }
  }

  void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) override {
    if (takes(DeviceOperation::copy_to_host)) {
      inner_->copy_to_host(to, from, size_bytes);
    }
  }

  void record(Event& event) override {
    FaultyEvent& ours = faulty(event);
    static_cast<void>(takes(DeviceOperation::record));
    ours.set_failure(failure_);
    inner_->record(ours.inner());
  }

  void wait(Event& event) override {
    FaultyEvent& ours = faulty(event);
    if (takes(DeviceOperation::wait)) {
      inner_->wait(ours.inner());
    }
  }

  void launch(std::function<void()> function) override {
    if (takes(DeviceOperation::launch)) {
      inner_->launch(std::move(function));
    }
  }

  void wait_flag(HostFlag flag) override {
    if (takes(DeviceOperation::wait_flag)) {
      inner_->wait_flag(flag);
    }
  }

  [[nodiscard]] bool idle() override {
    obey(*faults_, DeviceOperation::idle);
    if (!inner_->idle()) {
      return false;
    }
    if (failure_.has_value()) {
      throw Error(*std::exchange(failure_, std::nullopt));
    }
    return true;
  }

  [[nodiscard]] void* native_handle() const override { return inner_->native_handle(); }

 private:
  // Whether the operation goes on to the wrapped stream; queues what its fault puts before it.
  [[nodiscard]] bool takes(DeviceOperation operation) {
    faults_->wait_while_blocked(operation);
    const Action action = faults_->next(operation);
    switch (action.kind) {
      case Action::Kind::none:
        break;
      case Action::Kind::fail:
        throw Error(action.failure);
      case Action::Kind::fail_later:
        if (!failure_.has_value()) {
          failure_ = action.failure;
        }
        break;
      case Action::Kind::delay:
        inner_->launch([time = action.time] { std::this_thread::sleep_for(time); });
        break;
      case Action::Kind::hold:
        inner_->launch(
            [faults = faults_, abandoned = abandoned_] { faults->wait_while_held(abandoned); });
        break;
    }
    return !failure_.has_value();
  }

  const Counted counted_;
  const std::shared_ptr<DeviceFaults> faults_;
  const std::unique_ptr<Stream> inner_;
  const std::shared_ptr<bool> abandoned_ = std::make_shared<bool>(false);
  std::optional<Failure> failure_;  // of an operation that was taken and not carried out
};

class FaultyDevice final : public Device {
 public:
  FaultyDevice(std::shared_ptr<Device> inner, std::shared_ptr<DeviceFaults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  [[nodiscard]] const DeviceInfo& info() const override { return inner_->info(); }

  [[nodiscard]] DeviceMemory memory() override {
    DeviceMemory memory = inner_->memory();
    const std::optional<std::uint64_t> limit_bytes = faults_->memory_bytes();
    if (limit_bytes.has_value()) {
      const std::scoped_lock lock(mutex_);
      const std::uint64_t left_bytes = *limit_bytes - std::min(*limit_bytes, used_bytes_);
      memory.total_bytes = std::min(memory.total_bytes, *limit_bytes);
      memory.free_bytes = std::min(memory.free_bytes, left_bytes);
    }
    return memory;
  }

  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes) override {
    obey(*faults_, DeviceOperation::allocate);
    const std::optional<std::uint64_t> limit_bytes = faults_->memory_bytes();
    const std::scoped_lock lock(mutex_);
    if (limit_bytes.has_value() &&
        (size_bytes > *limit_bytes || used_bytes_ > *limit_bytes - size_bytes)) {
      refuse(size_bytes, *limit_bytes);
    }
    const DeviceAddress address = inner_->allocate(size_bytes);
    sizes_.emplace(address, size_bytes);
    used_bytes_ += size_bytes;
    faults_->count(&OutstandingOnDevice::allocations, 1);
    return address;
  }

  void release(DeviceAddress address) noexcept override {
    if (address.is_null()) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    const auto found = sizes_.find(address);
    HIPPO_ASSERT(found != sizes_.end());
    used_bytes_ -= found->second;
    sizes_.erase(found);
    inner_->release(address);
    faults_->count(&OutstandingOnDevice::allocations, -1);
  }

  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) override {
    return inner_->find(address);
  }

  [[nodiscard]] std::byte* allocate_pinned(std::size_t size_bytes) override {
    obey(*faults_, DeviceOperation::allocate_pinned);
    std::byte* const memory = inner_->allocate_pinned(size_bytes);
    faults_->count(&OutstandingOnDevice::pinned, 1);
    return memory;
  }

  void release_pinned(std::byte* memory) noexcept override {
    inner_->release_pinned(memory);
    if (memory != nullptr) {
      faults_->count(&OutstandingOnDevice::pinned, -1);
    }
  }

  void register_host(std::byte* memory, std::size_t size_bytes, HostAccess access) override {
    obey(*faults_, DeviceOperation::register_host);
    const std::scoped_lock lock(mutex_);
    inner_->register_host(memory, size_bytes, access);
    registered_.emplace(memory, size_bytes);
    faults_->count(&OutstandingOnDevice::registrations, 1);
  }

  void unregister_host(std::byte* memory) noexcept override {
    const std::scoped_lock lock(mutex_);
    inner_->unregister_host(memory);
    if (registered_.erase(memory) == 1) {
      faults_->count(&OutstandingOnDevice::registrations, -1);
    }
  }

  [[nodiscard]] bool registers_aside(std::chrono::milliseconds patience) override {
    return inner_->registers_aside(patience);
  }

  [[nodiscard]] bool registers_aside_now() override { return inner_->registers_aside_now(); }

  [[nodiscard]] std::unique_ptr<Stream> create_stream() override {
    obey(*faults_, DeviceOperation::create_stream);
    return std::make_unique<FaultyStream>(inner_->create_stream(), faults_);
  }

  [[nodiscard]] std::unique_ptr<Event> create_event() override {
    obey(*faults_, DeviceOperation::create_event);
    return std::make_unique<FaultyEvent>(inner_->create_event(), faults_);
  }

  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(void* native_handle) override {
    obey(*faults_, DeviceOperation::borrow_stream);
    return std::make_unique<FaultyStream>(inner_->borrow_stream(native_handle), faults_);
  }

  void make_current() override { inner_->make_current(); }

  [[nodiscard]] DeviceEntry enter() override { return inner_->enter(); }

  void leave(DeviceEntry entry) noexcept override { inner_->leave(entry); }

 private:
  [[noreturn]] void refuse(std::size_t size_bytes, std::uint64_t limit_bytes) const {
    const std::uint64_t free_bytes = limit_bytes - std::min(limit_bytes, used_bytes_);
    throw Error({.status = Status::out_of_device_memory,
                 .operation = "allocate on",
                 .object = inner_->info().name,
                 .detail = "asked " + std::to_string(size_bytes) + " bytes (" +
                           format_size(size_bytes) + "), free " + std::to_string(free_bytes) +
                           " of " + std::to_string(limit_bytes) + " bytes"});
  }

  const std::shared_ptr<Device> inner_;
  const std::shared_ptr<DeviceFaults> faults_;
  std::mutex mutex_;
  std::map<DeviceAddress, std::size_t> sizes_;
  std::map<const std::byte*, std::size_t> registered_;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Device> make_faulty_device(std::shared_ptr<Device> inner,
                                           std::shared_ptr<DeviceFaults> faults) {
  return std::make_shared<FaultyDevice>(std::move(inner), std::move(faults));
}

}  // namespace hippogriff
