// The slots one lane task works with, each with the event of the copy that last used it.
#pragma once

#include "transfer/lanes.hpp"

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace hippogriff {

// A borrowed slot and what it is doing.
struct Slot {
  std::byte* memory = nullptr;
  std::unique_ptr<StreamCopy> copied;
  std::size_t room_bytes = 0;
  Range piece;  // of the file
  Clock::time_point copy_begin;

  [[nodiscard]] std::span<std::byte> bytes() const { return {memory, room_bytes}; }
};

// Not thread-safe: belongs to one task. Destruction waits for its copies (up to device_timeout) and
// gives the slots back; a slot whose copy never ends is abandoned, not reused.
class SlotRing {
 public:
  // `room_bytes` of each: a slot of the pinbuffer, or a part. `growth`: of the pinbuffer, in the
  // first moments of a short transfer; whole slots are pinned at once.
  SlotRing(LaneContext& context,
           Transfer& transfer,
           std::size_t capacity,
           CopyStream& stream,
           std::size_t room_bytes = Pinbuffer::slot_bytes,
           Pinbuffer::Growth growth = Pinbuffer::Growth::late);
  ~SlotRing();
  SlotRing(const SlotRing&) = delete;
  SlotRing& operator=(const SlotRing&) = delete;

  // A slot nobody uses: an idle one, else one more from the pinbuffer while the ring is below its
  // capacity, the transfer within its host memory, and something left to claim. nullptr when there
  // is none now: retire a copy first. Waits for the pinbuffer only when the ring has no slot at
  // all; throws Error(timed_out) after device_timeout.
  Slot* try_idle();

  // Whether try_idle has one at hand; else the pinbuffer may have to pin more, which takes a while.
  [[nodiscard]] bool has_idle() const { return !idle_.empty(); }

  // After try_idle gave none: the transfer's other lanes have all of its host memory, or all that
  // was left to do. The lane should end; what it leaves is carried when they have ended.
  [[nodiscard]] bool starved() const { return slots_.empty(); }

  // The slot is used no more: it may be another lane's at once, where one waits that has none. One
  // slot at least stays, so the ring does not become starved.
  void make_idle(Slot* slot);

  // Starts a copy of `slot.piece`, which lies at `memory` in the slot, to where it belongs; the
  // slot joins the copies.
  void start_to_device(Slot* slot, const Transfer& transfer, const std::byte* memory);
  void start_to_host(Slot* slot, DeviceAddress from, std::byte* memory);

  // The oldest copy, once it is complete; the slot is the caller's until it is made idle or copied
  // again. nullptr when none is in flight (or, for take_copied, when it is not complete yet).
  Slot* wait_copied(const char* operation);
  Slot* take_copied();

  [[nodiscard]] std::size_t copies_in_flight() const { return copying_.size(); }

  [[nodiscard]] std::size_t size() const { return slots_.size(); }

 private:
  std::byte* acquire();
  void give_back(const Slot* slot);
  void copy_ended(const Slot& slot) const;

  LaneContext& context_;
  const Transfer& transfer_;
  HostBudget& budget_;
  std::size_t capacity_;
  CopyStream& stream_;
  const std::size_t room_bytes_;
  const Pinbuffer::Growth growth_;
  const Clock::time_point begin_ = Clock::now();
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> idle_;
  std::deque<Slot*> copying_;
};

}  // namespace hippogriff
