// A stream that is made by its first copy: all channels of an engine share one to the device, and
// each thread has one of its own.
#pragma once

#include "transfer/device_wait.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace hippogriff {

class CopyStream;

// How many batches were queued since the beginning, and how many of them where none was under way:
// so the link had been waiting for them.
struct CopyCounts {
  std::uint64_t batches = 0;
  std::uint64_t late = 0;
};

// Copies that were queued together: they are over together, with one event behind them.
struct CopyBatch {
  std::unique_ptr<Event> event;
  std::size_t bytes = 0;
  std::exception_ptr failure;      // set before `ended`
  std::atomic<bool> ended{false};  // set under the stream's lock
};

// A copy on a CopyStream, again and again: as an event, complete when the last that was started is.
// Throws why it did not begin, or failed. Used by one thread; a copy that has not begun when it is
// destroyed never begins.
class StreamCopy final : public Event {
 public:
  explicit StreamCopy(CopyStream& stream) : stream_(stream) {}

  ~StreamCopy() override;
  StreamCopy(const StreamCopy&) = delete;
  StreamCopy& operator=(const StreamCopy&) = delete;

  [[nodiscard]] bool completed() override;

 private:
  friend class CopyStream;

  // Waiting for its turn, queued on the stream in `batch_`, or neither.
  enum class State : std::uint8_t { none, waiting, queued, failed };

  [[nodiscard]] bool is_under_way() const;

  CopyStream& stream_;
  std::atomic<State> state_{State::none};  // what is not its own thread's is done under the lock
  std::vector<CopyPart> parts_;
  std::shared_ptr<CopyBatch> batch_;
  std::exception_ptr failure_;
};

// A stream for the first CopyStream that wants one, made before. Thread-safe.
class SpareStream {
 public:
  // The device must be current on the calling thread.
  void make(Device& device);
  // nullptr when there is none.
  [[nodiscard]] std::unique_ptr<Stream> take();

 private:
  std::mutex mutex_;
  std::unique_ptr<Stream> stream_;
};

// Channels share one, because the copy engine loses time between copies of different streams: 12
// channels with pieces of 2 MiB reached 49.6 GB/s on one stream and 47.7 on their own (one H100
// machine, limit 54.5). Made late, because streams that nobody copies on delay the first transfer.
// Thread-safe; the device must be current on the calling thread.
class CopyStream {
 public:
  // `spare` may be null; else it must outlive this.
  explicit CopyStream(Device& device, SpareStream* spare = nullptr)
      : device_(device), spare_(spare) {}

  ~CopyStream() = default;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  // Queues copies and records `copied` behind them. When it throws, some may be under way: drain.
  void copy_to_device(std::span<const CopyPart> parts, Event& copied);
  void copy_to_host(std::byte* to, DeviceAddress from, std::size_t size_bytes, Event& copied);

  // The same for slots. While enough copies are on their way the next ones to the device wait, and
  // become a batch: the engine would lose 3 us between any two, 7 % of pieces of 2 MiB.
  // Whoever starts a copy or asks for one queues what waits and looks what has ended, for all: so
  // each must be asked for until it is complete. One thread at a time does so, the others find the
  // lock taken and go on: calls of the driver wait for each other, and a thread that sleeps on a
  // lock takes 50 us to come back.
  [[nodiscard]] std::unique_ptr<StreamCopy> create_copy();
  void start_to_device(StreamCopy& copy, std::vector<CopyPart> parts);
  void start_to_host(StreamCopy& copy, std::byte* to, DeviceAddress from, std::size_t size_bytes);

  // Waits until nothing queued up to now runs any more and forgets what failed there, so that its
  // memory may be reused. Nobody queues meanwhile. False when the device hangs (up to
  // device_timeout) or is lost.
  [[nodiscard]] bool drain() noexcept;

  [[nodiscard]] CopyCounts counts() const { return {batches_.load(), late_.load()}; }

  // Forgets failures of copies that have ended, so that the next transfer begins afresh. Does not
  // wait.
  void forget_failures() noexcept;

 private:
  friend class StreamCopy;

  Stream& made();
  void advance();
  void settle_ended() noexcept;
  bool queue_next_batch();
  [[nodiscard]] bool enough_queued() const;
  std::vector<StreamCopy*> take_waiting();
  void queue_all(std::span<StreamCopy* const> copies) noexcept;
  std::exception_ptr queue_parts(std::span<StreamCopy* const> copies) noexcept;
  // Makes a batch of what was queued since the last.
  std::shared_ptr<CopyBatch> end_batch(std::size_t bytes);
  bool any_waits();
  void withdraw(StreamCopy& copy);

  Device& device_;
  SpareStream* spare_;
  std::mutex waiting_mutex_;  // a leaf, and held for no call of the device
  std::deque<StreamCopy*> waiting_;
  std::mutex mutex_;                                  // the rest
  std::unique_ptr<Stream> stream_;                    // made by the first copy
  std::vector<CopyPart> parts_;                       // of the batch being queued
  std::deque<std::shared_ptr<CopyBatch>> under_way_;  // the oldest first
  std::vector<std::unique_ptr<Event>> events_;        // to use again
  std::atomic<std::uint64_t> batches_{0};             // of slots, as counts() tells
  std::atomic<std::uint64_t> late_{0};
};

}  // namespace hippogriff
