// Streams of the host device as the interface wants them, and the registry of those that live.
#pragma once

#include "device/device.hpp"
#include "device/host_memory.hpp"
#include "device/host_pages.hpp"
#include "device/host_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace hippogriff {

// The live streams of a device by native handle. Thread-safe; outlives the device while streams do.
class StreamRegistry {
 public:
  void add(const std::shared_ptr<StreamQueue>& queue);
  void remove(const StreamQueue* queue) noexcept;
  // Null when no live stream has this handle.
  [[nodiscard]] std::shared_ptr<StreamQueue> find(void* handle) const;

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::weak_ptr<StreamQueue>> queues_;
};

// What a stream needs of its device; lives as long as any of its streams.
struct HostStreamContext {
  std::string device_name;
  std::shared_ptr<HostMemory> memory;
  std::shared_ptr<HostPages> pages;
  std::shared_ptr<StreamRegistry> registry;
};

// A device's stream (owned: its queue stops with it) or a caller's (borrowed).
class HostStream final : public Stream {
 public:
  enum class Ownership : std::uint8_t { owned, borrowed };

  HostStream(HostStreamContext context,
             std::shared_ptr<StreamQueue> queue,
             void* native_handle,
             Ownership ownership);
  ~HostStream() override;
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;
  HostStream(HostStream&&) = delete;
  HostStream& operator=(HostStream&&) = delete;

  void copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) override;
  void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  void launch(std::function<void()> function) override;
  void wait_flag(HostFlag flag) override;
  [[nodiscard]] bool idle() override;

  [[nodiscard]] void* native_handle() const override { return native_handle_; }

 private:
  // Refuses ranges that leave the allocation they begin in. Memory of no allocation is the caller's
  // own, which the host device reaches as well.
  void check_range(const char* operation, DeviceAddress address, std::size_t size_bytes) const;

  const HostStreamContext context_;
  const std::shared_ptr<StreamQueue> queue_;
  void* const native_handle_;
  const Ownership ownership_;
};

}  // namespace hippogriff
