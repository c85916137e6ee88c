// The short path of small synchronous transfers: on the caller's own thread, reads and copies by
// turns, no handle, no queue. What is not plain is left to the engine.
#pragma once

#include "base/trace.hpp"
#include "device/device.hpp"
#include "transfer/route.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

namespace hippogriff {

// One small transfer. `after_stream` orders it on the stream `stream` (native handle).
struct SmallTransfer {
  int fd = -1;
  DeviceAddress address;
  std::uint64_t offset = 0;
  std::size_t size_bytes = 0;
  bool after_stream = false;
  void* stream = nullptr;
};

// Thread-safe: as many callers at once as there are channels, more wait. Every channel has pinned
// memory of its own. The device must be current on the caller's thread.
class SmallPath {
 public:
  // What one thread moves sooner than several could be woken for it.
  static constexpr std::size_t size_bytes_max = std::size_t{2} << 20;
  // A read and a copy: the next read goes on while the copy does. More than one are only read from
  // the page cache.
  static constexpr std::size_t piece_bytes = std::size_t{256} << 10;

  // `trace` may be null.
  SmallPath(std::shared_ptr<Device> device, Trace* trace);
  ~SmallPath();
  SmallPath(const SmallPath&) = delete;
  SmallPath& operator=(const SmallPath&) = delete;

  // True when done. False when the engine should do it: the read or write was short or failed, the
  // data is not in the page cache, no channel was free, or the host would have to wait for the
  // stream. Throws Error(device_error).
  bool send(const SmallTransfer& transfer);
  bool recv(const SmallTransfer& transfer);

  // Makes the first channel before anybody asks for it. The device must be current.
  void prepare();

  // Lets callers go that wait behind work of their own; from now on.
  void stop() { stopping_ = true; }

  [[nodiscard]] std::uint64_t pinned_bytes() const;

 private:
  static constexpr std::size_t slots = 2;  // one is read into while the other is copied

  struct Channel {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<Stream> default_stream;
    std::array<std::unique_ptr<Event>, slots> copied;
    std::byte* memory = nullptr;
    std::uint32_t track = 0;
  };

  class Lease;

  Channel* acquire();
  void release(Channel* channel, bool reusable);

  static constexpr std::size_t channels_max = 32;
  static constexpr std::chrono::seconds retry_time{1};

  std::shared_ptr<Device> device_;
  Trace* trace_;
  mutable std::mutex mutex_;
  std::condition_variable channel_free_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Channel*> free_;
  std::size_t channels_reserved_ = 0;
  std::size_t lost_ = 0;
  std::chrono::steady_clock::time_point retry_at_;  // no channel is made before
  std::atomic<bool> stopping_{false};
};

}  // namespace hippogriff
