// Where kernels run and buffers live, behind one interface: `host` (in this process) and `cuda:N`.
// Streams, events, memory, pinned memory, and registration of mapped files.
#pragma once

#include "base/error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {

// An address in a device's memory. Not a pointer: the host may not follow it.
struct DeviceAddress {
  std::uint64_t value = 0;

  [[nodiscard]] bool is_null() const { return value == 0; }

  [[nodiscard]] DeviceAddress operator+(std::uint64_t bytes) const { return {value + bytes}; }

  friend auto operator<=>(const DeviceAddress&, const DeviceAddress&) = default;
};

enum class HostAccess : std::uint8_t { read_only, read_write };

// What a device can do, as data: routes choose by these, never by the device's name.
struct DeviceCapabilities {
  bool host_addressable = false;      // device addresses are host pointers; no link in between
  bool registers_read_only = false;   // pages of a file mapping can be registered for reading
  bool registers_read_write = false;  // ... of a shared memory mapping, for writing
  bool registers_aside = false;       // registers_aside() may become true
  bool stream_wait_flag = false;      // streams can wait for and write words in host memory
  bool cuda_kernels = false;          // its streams' handles are CUstreams: kernels run on them
};

struct DeviceInfo {
  std::string name;   // "cuda:0", "host"
  std::string model;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;   // "GPU-…" as NVML prints it; "host" for the host device
  std::string link;   // what its link's rates are kept under; empty: its uuid
  int numa_node = -1;
  std::uint64_t memory_bytes = 0;
  DeviceCapabilities can;
};

struct DeviceMemory {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// The allocation an address lies in.
struct AllocationInfo {
  DeviceAddress base;
  std::uint64_t size_bytes = 0;

  // How many bytes the allocation has from an address inside it on.
  [[nodiscard]] std::uint64_t room_from(DeviceAddress address) const {
    return size_bytes - (address.value - base.value);
  }
};

// A point in a stream's work. Reusable: record again after it completed.
class Event {
 public:
  virtual ~Event() = default;
  // True once all work before the last record is complete (or when never recorded).
  // Throws Error(device_error) when that work failed.
  [[nodiscard]] virtual bool completed() = 0;
};

// A word in host memory that a stream can wait for: see Stream::wait_flag.
struct HostFlag {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;  // waits until *word >= value, as unsigned 32-bit numbers modulo 2^32
};

// One of several copies that may run in any order.
struct CopyPart {
  DeviceAddress to;
  const std::byte* from = nullptr;
  std::size_t size_bytes = 0;
};

// Work in order. Calls queue and return; one thread at a time per stream.
// Host memory named in a copy must stay until an event recorded after it has completed.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy_to_device(DeviceAddress to, const std::byte* from, std::size_t size_bytes) = 0;
  // copy_to_device for each. A CUDA device that hears of all at once (drivers of CUDA 13 and later)
  // loses no time between them: some 3 us each otherwise. When it throws, some may be queued.
  virtual void copy_all_to_device(std::span<const CopyPart> parts);
  virtual void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  // Runs `function` on a thread of the device when the work before it is done. It must not call
  // into the device.
  virtual void launch(std::function<void()> function) = 0;
  // Holds the stream until the flag's word reaches the value. Needs can.stream_wait_flag.
  virtual void wait_flag(HostFlag flag) = 0;
  // True when nothing is queued. Throws as Event::completed does.
  [[nodiscard]] virtual bool idle() = 0;
  // What the outside world calls this stream (CUstream; the object itself on `host`).
  [[nodiscard]] virtual void* native_handle() const = 0;
};

// What a thread had before it entered a device.
struct DeviceEntry {
  bool pushed = false;   // something else was current, or nothing
  int capture_mode = 0;  // CUDA's, of the thread
};

// One device. Thread-safe. Throws Error(device_error, out_of_device_memory) with the device's name,
// the operation and the CUresult. Streams, events and memory must go before their device does.
class Device {
 public:
  virtual ~Device() = default;
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  [[nodiscard]] virtual DeviceMemory memory() = 0;

  // At least 256-byte aligned. Throws out_of_device_memory when there is no room: at once, but for
  // released memory that work still uses, which a CUDA device waits for up to 10 s.
  [[nodiscard]] virtual DeviceAddress allocate(std::size_t size_bytes) = 0;

  // The same without waiting, for who asks again.
  [[nodiscard]] virtual DeviceAddress allocate_now(std::size_t size_bytes) {
    return allocate(size_bytes);
  }

  // `address` must come from allocate of this device; work that uses it must be complete. A CUDA
  // device lets work queued before in its context go on using it, and does not wait for that.
  virtual void release(DeviceAddress address) noexcept = 0;
  // The allocation around an address, whoever made it; nothing when it is not this device's memory.
  [[nodiscard]] virtual std::optional<AllocationInfo> find(DeviceAddress address) = 0;

  // Host memory the device copies from and to at full speed, page-aligned.
  [[nodiscard]] virtual std::byte* allocate_pinned(std::size_t size_bytes) = 0;
  virtual void release_pinned(std::byte* memory) noexcept = 0;
  // Makes pages of the caller's (a mapping) as good as pinned until unregister_host. Page-aligned.
  virtual void register_host(std::byte* memory, std::size_t size_bytes, HostAccess access) = 0;
  virtual void unregister_host(std::byte* memory) noexcept = 0;

  [[nodiscard]] virtual std::unique_ptr<Stream> create_stream() = 0;
  [[nodiscard]] virtual std::unique_ptr<Event> create_event() = 0;
  // A stream of the caller's, by its native handle (nullptr: the default stream). Does not own it.
  [[nodiscard]] virtual std::unique_ptr<Stream> borrow_stream(void* native_handle) = 0;

  // True once registering neither waits for other work on the device nor holds up other calls. On a
  // CUDA device that takes a second context (259 MiB of an H100's memory, and 0.1 s to make, in
  // which the process's other calls of the driver wait), which the first call has made in the
  // background. Waits up to `patience` for it. Where that failed
  // (device memory was short, say), a call some seconds later tries again. Registering works
  // without.
  [[nodiscard]] virtual bool registers_aside(std::chrono::milliseconds patience) = 0;
  // Whether that is so already. Begins nothing.
  [[nodiscard]] virtual bool registers_aside_now() = 0;

  // Binds this thread to the device for the calls that follow; cheap when it already is. Threads of
  // the runtime call it once; calls that enter from a caller's thread use DeviceScope.
  virtual void make_current() = 0;
  // The opposite pair for a caller's thread: what was current before comes back.
  [[nodiscard]] virtual DeviceEntry enter() = 0;
  virtual void leave(DeviceEntry entry) noexcept = 0;
};

// Makes a device current on a caller's thread for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(Device& device) : device_(device), entry_(device.enter()) {}

  ~DeviceScope() { device_.leave(entry_); }

  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device& device_;
  const DeviceEntry entry_;
};

// How a wait asks again: at once for a while, then after sleeps of 10 us and more.
struct Polling {
  std::chrono::nanoseconds spin = std::chrono::microseconds(10);
  std::chrono::nanoseconds longest_sleep = std::chrono::microseconds(100);
};

// Waits for an event or for a stream to run dry by asking again. Returns false when the timeout
// ends first. Never blocks in the driver.
[[nodiscard]] bool wait_for(Event& event,
                            std::chrono::nanoseconds timeout,
                            const Polling& polling = {});
[[nodiscard]] bool wait_for(Stream& stream, std::chrono::nanoseconds timeout);

}  // namespace hippogriff
