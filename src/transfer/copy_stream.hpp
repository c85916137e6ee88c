// A stream that is made by its first copy: all channels of an engine share one to the device, and
// each thread has one of its own.
#pragma once

#include "transfer/device_wait.hpp"
#include "transfer/transfer.hpp"

#include <memory>
#include <mutex>

namespace hippogriff {

// Channels share one, because the copy engine loses time between copies of different streams: 12
// channels with pieces of 2 MiB reached 49.6 GB/s on one stream and 47.7 on their own (one H100
// machine, limit 54.5). Made late, because streams that nobody copies on delay the first transfer.
// Thread-safe; the device must be current on the calling thread.
class CopyStream {
 public:
  explicit CopyStream(Device& device) : device_(device) {}

  ~CopyStream() = default;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Queues the copies of a piece of the file, which lies at `from`, to where it belongs, and
  // records `copied` behind them. When it throws, copies may be under way: drain.
  void copy_to_device(const Transfer& transfer, Range piece, const std::byte* from, Event& copied);
  // Queues a copy and records `copied` behind it. Throws as above.

  void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes, Event& copied);

  // Waits until nothing queued up to now runs any more and forgets what failed there, so that its
  // memory may be reused. Nobody queues meanwhile. False when the device hangs (up to
  // device_timeout) or is lost.
  [[nodiscard]] bool drain() noexcept;

  // Forgets failures of copies that have ended, so that the next transfer begins afresh. Does not
  // wait.
  void forget_failures() noexcept;

 private:
  Stream& made();

  Device& device_;
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;  // made by the first copy
};

}  // namespace hippogriff
