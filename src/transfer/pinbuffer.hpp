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

  // `limit_bytes` is rounded up to one segment at least. Nothing is allocated yet.
  Pinbuffer(Device& device, std::size_t limit_bytes);
  ~Pinbuffer();
  Pinbuffer(const Pinbuffer&) = delete;
  Pinbuffer& operator=(const Pinbuffer&) = delete;

  // A slot of slot_bytes, or nullptr when all are lent and none came back within `timeout`, or when
  // `wanted`, asked now and then under a lock, says that it is not any more. Grows before it waits,
  // by one segment at a time: there are never more than the slots in use need. Slots that come
  // back are for those who wait already. Throws Error when the first segment cannot be allocated.
  [[nodiscard]] std::byte* acquire(
      std::chrono::nanoseconds timeout, const std::function<bool()>& wanted = [] { return true; });
  void release(std::byte* slot) noexcept;
  // Before release: the device may still use the slot, so it (and its segment) is never reused.
  void abandon(std::byte* slot) noexcept;

  // Somebody waits, and all there may be is lent: who has several slots should give one back. Takes
  // no lock, so it may be a moment late.
  [[nodiscard]] bool is_short() const { return short_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::size_t allocated_bytes() const;
  // Why memory is not pinned; "" when it is.
  [[nodiscard]] std::string refusal() const;

  [[nodiscard]] std::size_t limit_bytes() const { return segments_max_ * segment_bytes; }

 private:
  static constexpr std::size_t segment_bytes = slot_bytes * segment_slots;

  [[nodiscard]] std::size_t segment_count() const {
    return segments_.size() + ordinary_segments_.size();
  }

  void await_slot(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point end);
  void slots_changed() noexcept;
  [[nodiscard]] bool may_grow() const;
  std::byte* grow(std::unique_lock<std::mutex>& lock);
  std::byte* new_segment(std::unique_lock<std::mutex>& lock);
  std::byte* new_ordinary_segment();

  Device& device_;
  const std::size_t segments_max_;
  mutable std::mutex mutex_;
  std::condition_variable slot_free_;
  std::vector<std::byte*> free_;
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
