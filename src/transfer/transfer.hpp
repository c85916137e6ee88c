// One transfer: what was asked, how far it is, how it ended. The state behind the C ABI's handle.
#pragma once

#include "base/error.hpp"
#include "base/range.hpp"
#include "base/trace.hpp"
#include "device/device.hpp"
#include "node/transfers.hpp"
#include "storage/storage.hpp"
#include "transfer/copy_stream.hpp"
#include "transfer/destinations.hpp"
#include "transfer/host_budget.hpp"
#include "transfer/parked_pieces.hpp"
#include "transfer/route.hpp"
#include "transfer/router.hpp"
#include "transfer/work_map.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff {

class AtomicFile;
class LandingChecksums;
class ReadAheadFile;

// What a caller asked for, checked.
struct TransferRequest {
  Direction direction = Direction::send;
  std::shared_ptr<File> file;
  std::shared_ptr<ReadAheadFile> read_ahead;  // the file, where some of it has been read; else null
  std::shared_ptr<AtomicFile> replaces;       // recv of a whole file by path: committed at the end
  Range extent;                               // of the file, in bytes
  std::shared_ptr<Device> device;
  DeviceAddress address;      // null: to be allocated (send)
  Destinations destinations;  // of a send to several; empty: all of it goes to `address`
  Route route = Route::automatic;
  std::uint32_t flags = 0;  // hippogriff_flags
  void* stream = nullptr;
  std::chrono::milliseconds memory_timeout{0};
  std::uint64_t host_memory_bytes = 0;          // 0: no bound
  std::shared_ptr<LandingChecksums> checksums;  // of what has landed; null: none
  bool new_memory = false;                      // it goes where the kernel has yet to make pages
};

// What one lane did for a transfer.
struct LaneTally {
  std::uint64_t bytes = 0;
  std::uint64_t moved_bytes = 0;  // of these; `direct` leaves out what lies between destinations
  double cpu_seconds = 0;
  std::uint32_t channels = 0;  // tasks that ran, the widest moment aside
  Clock::time_point first;     // start of its first task
  Clock::time_point last;      // end of its last
};

// Thread-safe. Shared by the caller's handle, the engine and the tasks that carry it.
class Transfer {
 public:
  Transfer(TransferRequest request,
           RoutingDecision decision,
           WorkMap::Classifier classifier,
           Warmth otherwise);
  ~Transfer();
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  [[nodiscard]] const TransferRequest& request() const { return request_; }

  [[nodiscard]] const RoutingDecision& decision() const { return decision_; }

  [[nodiscard]] Device& device() const { return *request_.device; }

  // For lanes and hooks, until it ends: then the file is closed, while others may still ask it
  // something. They have path().
  [[nodiscard]] File& file() const { return *request_.file; }

  // What stays of the request's files.
  [[nodiscard]] const std::string& path() const { return path_; }

  [[nodiscard]] bool replaces_a_file() const { return replaces_; }

  // How much was read while a context was made; nothing where that was not tried.
  [[nodiscard]] std::optional<std::uint64_t> read_ahead_bytes() const { return read_ahead_bytes_; }

  WorkMap work;
  HostBudget host_memory;
  ParkedPieces parked;

  // The device address of a file offset. Only once there is one, and not of sends to several
  // destinations.
  [[nodiscard]] DeviceAddress address_of(std::uint64_t file_offset) const;

  // Calls `use(Segment)` for each part of a piece of the file, with where it belongs.
  template <typename Use>
  void for_each_part(Range piece, Use&& use) const {
    if (request_.destinations.empty()) {
      use(Segment{piece, address_of(piece.offset)});
    } else {
      hippogriff::for_each_part(request_.destinations, piece, std::forward<Use>(use));
    }
  }

  // The copies that bring a piece of the file, which lies at `from`, to where it belongs.
  [[nodiscard]] std::vector<CopyPart> copies_of(Range piece, const std::byte* from) const;

  // Of a send to several destinations: the first one's.
  [[nodiscard]] DeviceAddress address() const { return {address_.load()}; }

  void set_address(DeviceAddress address) { address_ = address.value; }

  // --- for lanes ---
  // True when lanes should stop claiming: failed or cancelled.
  [[nodiscard]] bool stopping() const { return stopping_.load(std::memory_order_relaxed); }

  // A lane has found no piece left: the others end soon, and who waits for the transfer stays awake
  // from now on.
  void ends_soon();

  // These bytes of the file are where they belong: hashes them where that is asked for. The direct
  // lane calls it as it reads, before piece_done; for the other lanes piece_done does.
  void landed(Range range);
  // The bytes are where they belong.
  void piece_done(Lane lane, Range piece);
  // The first failure counts.
  void fail(Failure failure);
  void tally_task(Lane lane, Clock::time_point begin, double cpu_seconds);

  // Of the bytes done, those that came from the drive past the page cache.
  void count_cold(std::uint64_t bytes) { cold_bytes_ += bytes; }

  [[nodiscard]] std::uint64_t cold_bytes() const { return cold_bytes_.load(); }

  [[nodiscard]] std::uint64_t parked_bytes() const { return parked.bytes(); }

  // recv: bytes that have left the device; at all of them the memory is released.
  void drained(std::uint64_t bytes);

  [[nodiscard]] std::uint64_t drained_bytes() const { return drained_bytes_.load(); }

  // --- for callers ---
  void cancel();

  [[nodiscard]] bool finished() const { return finished_.load(std::memory_order_acquire); }

  // Negative waits for ever. False when the timeout ended first.
  bool wait(std::chrono::milliseconds timeout);
  bool wait_released(std::chrono::milliseconds timeout);
  [[nodiscard]] hippogriff_progress progress() const;

  [[nodiscard]] const Failure& failure() const { return failure_; }  // once finished

  [[nodiscard]] const std::string& failure_message() const { return failure_message_; }

  [[nodiscard]] std::vector<Range> missing() const;
  [[nodiscard]] int completion_fd();  // an eventfd, made at the first call

  // --- for the engine ---
  // From here on cancel() and give_up() come too late: what the transfer did stands.
  void seal();
  // Fails the transfer from outside, unless it is sealed.
  void give_up(Failure failure);
  // Ends the transfer; `failure.status` ok when nothing went wrong. Runs the completion hooks, then
  // wakes everybody. Exactly once.
  void finish();

  void on_finish(std::function<void(Transfer&)> hook) { hooks_.push_back(std::move(hook)); }

  // Runs once, when the device memory is no longer used: early for drained receives.
  void on_released(std::function<void(Transfer&)> hook) { released_hook_ = std::move(hook); }

  // Runs when memory was allocated for the transfer.
  void on_allocated(std::function<void(Transfer&)> hook) { allocated_hook_ = std::move(hook); }

  [[nodiscard]] bool failed() const;
  [[nodiscard]] Status status() const;

  [[nodiscard]] std::uint64_t bytes_done() const { return bytes_done_.load(); }

  [[nodiscard]] LaneTally tally(Lane lane) const;

  // Gets the device memory of a send that allocates. Throws Error(out_of_device_memory).
  void allocate();

  int task_count = 0;                 // queued or running; guarded by the engine's lock
  int copying_count = 0;              // of these, those that Engine::copies counts; the same lock
  std::atomic<bool> gate_open{true};  // the device memory may be used
  Clock::time_point memory_deadline;  // when waiting for memory ends
  // Asked, where there is one, before memory is allocated; what it throws is the transfer's
  // failure.
  std::function<bool(Transfer&)> memory_promised;
  std::unique_ptr<Event> after;   // the caller's stream reached the transfer
  std::atomic<bool> alone{true};  // nothing else was in flight beside it
  CopyCounts copies_before;       // of the device's stream, when it was submitted
  std::uint64_t piece_bytes_max = Pinbuffer::slot_bytes;  // whole pages. Before it starts
  // For other processes to see it; null where there is no node. Before the transfer starts.
  std::unique_ptr<node::TransferNotice> notice;
  // How many requests the other processes leave to it now; null where there is no node.
  std::function<std::uint32_t()> drive_depth_max;
  // Whether another process's transfer that does not wait for its device uses its drive now; null
  // where that cannot be known, or where it uses none.
  std::function<bool()> others_need_drive;

  const Clock::time_point submitted = Clock::now();

 private:
  void stay_awake(std::unique_lock<std::mutex>& lock, Clock::duration time) const;

  [[nodiscard]] std::uint64_t claimed_bytes(Range longest) const;
  [[nodiscard]] bool released_locked() const;
  void run_released_hook();

  TransferRequest request_;  // its files go when it ends; nothing else of it changes
  const RoutingDecision decision_;
  const std::string path_;
  const bool replaces_;
  const std::optional<std::uint64_t> read_ahead_bytes_;
  std::atomic<std::uint64_t> address_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> ends_soon_{false};
  std::atomic<bool> finished_{false};
  std::atomic<std::uint64_t> bytes_done_{0};
  std::atomic<std::uint64_t> drained_bytes_{0};
  std::atomic<std::uint64_t> cold_bytes_{0};

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  RangeSet done_;
  Failure failure_;
  std::string failure_message_;  // once finished
  std::array<LaneTally, lane_count> tallies_{};
  std::vector<std::function<void(Transfer&)>> hooks_;
  std::function<void(Transfer&)> released_hook_;
  std::function<void(Transfer&)> allocated_hook_;
  std::once_flag released_once_;
  Clock::time_point finished_at_;
  int completion_fd_ = -1;
  bool sealed_ = false;
};

}  // namespace hippogriff
