// An array on a device whose memory the host does not reach, used from the host: by kernels of the
// library's own, on streams of the caller's or through pinned memory.
#pragma once

#include "array/row_kernels.hpp"
#include "array/storage_array.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <span>

namespace hippogriff::ondemand {

// Row numbers and rows in the device's memory, and the CUstream that has them.
struct DeviceRows {
  DeviceAddress numbers;
  DeviceAddress memory;
  std::uint64_t count = 0;
  std::uint64_t row_bytes = 0;
  std::uint32_t number_bytes = 0;
  bool numbers_signed = false;
  void* stream = nullptr;
};

enum class Direction : std::uint8_t { from_array, to_array };

// Thread-safe: who waits holds up the others. Calls that take host memory come after all that is
// queued on the default stream, after what `after` was told, and after queued rows. Throws Error:
// of the array's check() for what an access met, unsupported where there are no kernels,
// device_error.
class DeviceAccess {
 public:
  explicit DeviceAccess(StorageArray& array);
  // finish() must have been called.
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

  void after(void* stream);
  // For queued rows, and what `after` was told.
  void wait();

  // Bytes of the array from an offset on, which lie in it.
  void move(Direction direction, std::uint64_t offset, std::byte* memory, std::size_t size);
  // Rows by their numbers, which are in range.
  void move_rows(Direction direction,
                 std::span<const std::uint64_t> numbers,
                 std::size_t row_bytes,
                 std::byte* memory);
  // Queues; the first failure stays with the array, as do rows that are out of range: of these
  // zeros are read, and nothing is written.
  void queue_rows(Direction direction, const DeviceRows& rows);
  void flush();

  // Ask ahead, and wait for no data. What the host names is asked for beside all else that is
  // queued; when so many of these wait for the device that they would be late, nothing is. Numbers
  // of the host's are in range.
  void prefetch(std::uint64_t offset, std::uint64_t size);
  void prefetch_rows(std::span<const std::uint64_t> numbers, std::size_t row_bytes);
  // Queues, where the numbers are; `memory` names nothing.
  void queue_prefetch(const DeviceRows& rows);
  // Queues reads past the cache. Throws Error(unsupported) where the array cannot be put in place.
  void queue_zero_copy(const DeviceRows& rows);

  // Where the device's memory has an array_view of elements of a size. Stays until finish().
  [[nodiscard]] DeviceAddress view(std::size_t element_size);

  // Waits for what was queued and gives everything back. False when it has not ended in time: then
  // the array's memory must stay. Idempotent.
  [[nodiscard]] bool finish() noexcept;

 private:
  struct Exchange;

  void make_ready();
  [[nodiscard]] Exchange& exchange();
  void launch(RowKernel kernel, const RowMoves& moves, Stream& stream);
  void run(RowKernel kernel, const RowMoves& moves, Stream& stream);
  void follow(Stream& stream);
  void wait_for_stream(Stream& stream);
  [[nodiscard]] Stream& ahead();
  [[nodiscard]] bool may_ask();
  void launch_on(RowKernel kernel, const RowMoves& moves, void* stream);
  [[nodiscard]] RowMoves moves_of_array(std::uint64_t row_bytes) const;
  [[nodiscard]] bool has_all_to_read();
  void note_ahead();
  [[nodiscard]] RowMoves moves_of(const DeviceRows& rows) const;
  void require_device_memory(DeviceAddress address, std::uint64_t size_bytes, const char* what);

  StorageArray& array_;
  Device& device_;
  std::mutex mutex_;
  std::unique_ptr<RowKernels> kernels_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Stream> ahead_;                 // follows none
  std::deque<std::unique_ptr<Event>> asked_for_;  // an event after each launch there
  Exchange* exchange_ = nullptr;                  // pinned
  std::map<std::size_t, DeviceAddress> views_;
};

}  // namespace hippogriff::ondemand
