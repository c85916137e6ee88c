// Puts the host device together from its memory, pages, link and streams.
#include "device/host_device.hpp"

#include "base/page_size.hpp"
#include "base/size.hpp"
#include "device/host_event.hpp"
#include "device/host_link.hpp"
#include "device/host_memory.hpp"
#include "device/host_pages.hpp"
#include "device/host_stream.hpp"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace hippogriff {

namespace {

constexpr const char* memory_variable = "HIPPOGRIFF_HOST_MEMORY";

std::uint64_t machine_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  HIPPO_ASSERT(pages > 0);
  return static_cast<std::uint64_t>(pages) * page_bytes();
}

}  // namespace

std::uint64_t host_memory_limit_bytes() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): unsafe only beside setenv, which programs must not do.
  const char* const text = std::getenv(memory_variable);
  if (text == nullptr || *text == '\0') {
    return machine_memory_bytes() / 2;
  }
  try {
    const std::uint64_t limit_bytes = parse_size(text);
    if (limit_bytes == 0) {
      throw_invalid("parse size", "it is 0");
    }
    return limit_bytes;
  } catch (const Error& error) {
    throw_invalid(std::string("read ") + memory_variable, error.failure().detail);
  }
}

namespace {

bool has_link(const HostDeviceOptions& options) {
  return options.link_bytes_per_second != 0;
}

void check(const HostDeviceOptions& options) {
  if (!std::isfinite(options.link_bytes_per_second) || options.link_bytes_per_second < 0 ||
      options.link_latency < std::chrono::nanoseconds(0)) {
    throw_invalid("make a host device",
                  "the link's bandwidth and latency must be finite and not negative");
  }
}

// A simulated link has rates of its own, by how fast it was made; else the device's name will do.
std::string link_name(const HostDeviceOptions& options) {
  if (!has_link(options)) {
    return "";
  }
  const double rate = std::min(options.link_bytes_per_second, 1e18);
  return options.name + "+" + std::to_string(static_cast<std::uint64_t>(rate)) + "B/s";
}

DeviceInfo describe(const HostDeviceOptions& options, std::uint64_t memory_bytes) {
  return {.name = options.name,
          .model = has_link(options) ? "host memory behind a simulated link of " +
                                           format_size(static_cast<std::uint64_t>(
                                               std::min(options.link_bytes_per_second, 1e18))) +
                                           "/s"
                                     : "host memory",
          .uuid = options.name,
          .link = link_name(options),
          .memory_bytes = memory_bytes,
          .can = {.host_addressable = !has_link(options),
                  .registers_read_only = true,
                  .registers_read_write = true,
                  .registers_aside = options.registers_aside,
                  .stream_wait_flag = true}};
}

class HostDevice final : public Device {
 public:
  HostDevice(const HostDeviceOptions& options, std::uint64_t memory_bytes)
      : info_(describe(options, memory_bytes)),
        context_{.device_name = options.name,
                 .memory = std::make_shared<HostMemory>(options.name, memory_bytes, options.ledger),
                 .pages = std::make_shared<HostPages>(options.name),
                 .registry = std::make_shared<StreamRegistry>()} {
    if (has_link(options)) {
      link_ = std::make_shared<SimulatedLink>(options.link_bytes_per_second, options.link_latency);
    }
    default_queue_ = std::make_shared<StreamQueue>(options.name, link_);
  }

  ~HostDevice() override { default_queue_->stop(); }

  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;
  HostDevice(HostDevice&&) = delete;
  HostDevice& operator=(HostDevice&&) = delete;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }

  [[nodiscard]] DeviceMemory memory() override { return context_.memory->memory(); }

  [[nodiscard]] DeviceAddress allocate(std::size_t size_bytes) override {
    return context_.memory->allocate(size_bytes);
  }

  void release(DeviceAddress address) noexcept override { context_.memory->release(address); }

  [[nodiscard]] std::optional<AllocationInfo> find(DeviceAddress address) override {
    return context_.memory->find(address);
  }

  [[nodiscard]] std::byte* allocate_pinned(std::size_t size_bytes) override {
    return context_.pages->allocate_pinned(size_bytes);
  }

  void release_pinned(std::byte* memory) noexcept override {
    context_.pages->release_pinned(memory);
  }

  void register_host(std::byte* memory, std::size_t size_bytes, HostAccess access) override {
    context_.pages->register_pages(memory, size_bytes, access);
  }

  void unregister_host(std::byte* memory) noexcept override { context_.pages->unregister(memory); }

  [[nodiscard]] bool registers_aside(std::chrono::milliseconds /*patience*/) override {
    asked_aside_ = true;
    return true;
  }

  [[nodiscard]] bool registers_aside_now() override {
    return asked_aside_ || !info_.can.registers_aside;
  }

  [[nodiscard]] std::unique_ptr<Stream> create_stream() override {
    auto queue = std::make_shared<StreamQueue>(info_.name, link_);
    auto stream =
        std::make_unique<HostStream>(context_, queue, queue.get(), HostStream::Ownership::owned);
    context_.registry->add(queue);
    return stream;
  }

  [[nodiscard]] std::unique_ptr<Event> create_event() override {
    return std::make_unique<HostEvent>();
  }

  [[nodiscard]] std::unique_ptr<Stream> borrow_stream(void* native_handle) override {
    const auto queue =
        native_handle == nullptr ? default_queue_ : context_.registry->find(native_handle);
    if (queue == nullptr) {
      throw_invalid("use a stream of " + info_.name, "the handle is no live stream of this device");
    }
    return std::make_unique<HostStream>(
        context_, queue, native_handle, HostStream::Ownership::borrowed);
  }

  // Threads are not bound to this device: it is everywhere.
  void make_current() override {}

  [[nodiscard]] DeviceEntry enter() override { return {}; }

  void leave(DeviceEntry /*entry*/) noexcept override {}

 private:
  const DeviceInfo info_;
  const HostStreamContext context_;
  std::shared_ptr<SimulatedLink> link_;
  std::shared_ptr<StreamQueue> default_queue_;
  std::atomic<bool> asked_aside_{false};
};

}  // namespace

std::shared_ptr<Device> make_host_device(const HostDeviceOptions& options) {
  check(options);
  return std::make_shared<HostDevice>(
      options, options.memory_bytes != 0 ? options.memory_bytes : host_memory_limit_bytes());
}

}  // namespace hippogriff
