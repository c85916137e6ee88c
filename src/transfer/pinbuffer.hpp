// The pool of pinned host memory that lanes borrow from: grown in segments up to its bound, never
// given back before the end, reused by every transfer of one device (Gullfoss 4.4). Bounds of
// devices are parts of one (Settings).
//
// It grows by one segment at a time, while lanes that have slots do what others still wait to do.
// Pinning takes locks of the kernel and the driver: on an H100 machine registering a segment took
// 0.3 ms, and 4 to 5 ms beside eleven others; 12 segments took 12 ms one after the other and 11 ms
// at once. The first send of 16 MiB took 4.7 ms so, and 10 with all at once.
#pragma once

#include "device/device.hpp"
#include "device/host_memory.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace hippogriff {

// Where the device refuses to pin even the first segment, segments are ordinary memory, from which
// copies are slower. Thread-safe. Slots must come back before the pinbuffer is destroyed.
class Pinbuffer {
 public:
  // Small enough that the slots of all channels stay in the processor's caches between the read and
  // the copy: on an H100 machine whose memory was busy, 12 channels of 2 slots reached 46 GB/s with
  // 2 MiB, 33 with 4 MiB and 39 with 1 MiB.
  static constexpr std::size_t slot_bytes = std::size_t{2} << 20;
  // One channel's.
  static constexpr std::size_t segment_slots = 2;
  // What those have whose pieces are so small: pinning takes a short transfer longer than all the
  // rest.
  static constexpr std::size_t quarter_bytes = slot_bytes / 4;
  static constexpr std::size_t half_bytes = slot_bytes / 2;

  // `limit_bytes` is rounded up to one segment at least. Nothing is allocated yet.
  Pinbuffer(Device& device, std::size_t limit_bytes);
  ~Pinbuffer();
  Pinbuffer(const Pinbuffer&) = delete;
  Pinbuffer& operator=(const Pinbuffer&) = delete;

  // A slot of slot_bytes, or nullptr when all are lent and none came back within `timeout`, or when
  // `wanted`, asked now and then under a lock, says that it is not any more. Grows before it waits,
  // by one segment at a time. Slots that come back are for those who wait already. Throws Error
  // when the first segment cannot be allocated.
  [[nodiscard]] std::byte* acquire(
      std::chrono::nanoseconds timeout, const std::function<bool()>& wanted = [] { return true; });
  // The same for quarter_bytes or half_bytes, which are cut from slots and become slots again when
  // all are back. Without a timeout nothing while anybody waits: the caller has some already.
  // Growth::late: only where there is nothing at all, or after a wait of `late`. A short transfer
  // is over before, unless who has the memory waits for something else.
  static constexpr std::chrono::milliseconds late{20};
  enum class Growth : std::uint8_t { late, at_once };
  [[nodiscard]] std::byte* acquire_part(
      std::size_t bytes,
      std::chrono::nanoseconds timeout,
      Growth grows,
      const std::function<bool()>& wanted = [] { return true; });
  // Slots and parts.
  void release(std::byte* memory) noexcept;
  // Before release: the device may still use it, so it (and its segment) is never reused.
  void abandon(std::byte* memory) noexcept;

  // Grows to `bytes` before anybody asks, while it is `wanted` and may grow; by one segment, while
  // it has less than `bytes_max` and none is being pinned. Throw as acquire does.
  void prepare(std::size_t bytes, const std::function<bool()>& wanted);
  void prepare_one_more(std::size_t bytes_max);

  // Somebody waits for what is lent: who has several slots should give one back. Takes no lock, so
  // it may be a moment late.
  [[nodiscard]] bool is_short() const { return short_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::size_t allocated_bytes() const;
  // Why memory is not pinned; "" when it is.
  [[nodiscard]] std::string refusal() const;

  [[nodiscard]] std::size_t limit_bytes() const { return segments_max_ * segment_bytes; }

 private:
  static constexpr std::size_t segment_bytes = slot_bytes * segment_slots;

  // A slot some of whose parts are lent.
  struct CutSlot {
    std::byte* memory = nullptr;
    std::size_t part_bytes = 0;
    std::uint32_t free_parts = 0;  // a bit each

    [[nodiscard]] std::uint32_t all_parts() const { return (1U << (slot_bytes / part_bytes)) - 1; }
  };

  [[nodiscard]] std::size_t segment_count() const {
    return segments_.size() + ordinary_segments_.size();
  }

  bool await_slot(std::unique_lock<std::mutex>& lock,
                  std::chrono::steady_clock::time_point end,
                  const std::function<bool()>& wanted);
  [[nodiscard]] std::vector<CutSlot>::iterator cut_slot_of(const std::byte* memory);
  std::byte* part_of_cut_slot(std::size_t bytes);
  void slots_changed() noexcept;
  [[nodiscard]] bool may_grow() const;
  std::byte* grow(std::unique_lock<std::mutex>& lock);
  void add_segment(std::unique_lock<std::mutex>& lock);
  std::byte* new_segment(std::unique_lock<std::mutex>& lock);
  std::byte* new_ordinary_segment();

  Device& device_;
  const std::size_t segments_max_;
  mutable std::mutex mutex_;
  std::condition_variable slot_free_;
  std::vector<std::byte*> free_;
  std::vector<CutSlot> cut_;
  std::size_t lent_ = 0;     // slots and parts
  std::size_t waiting_ = 0;  // for a slot to come back, not for a segment
  std::atomic<bool> short_{false};
  std::vector<std::byte*> segments_;  // pinned ones
  std::vector<std::unique_ptr<PageMapping>> ordinary_segments_;
  std::string refusal_;
  std::vector<std::byte*> abandoned_;
  bool growing_ = false;  // a segment is being allocated
  std::chrono::steady_clock::time_point next_growth_;
};

}  // namespace hippogriff
