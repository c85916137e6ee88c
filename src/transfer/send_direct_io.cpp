// Drive to pinbuffer by O_DIRECT, several requests in flight, pinbuffer to device by the copy
// engine, overlapped. One thread keeps the drive busy; the depth follows what the drive gives.
//
// A virtual drive tells of its requests when none is left, of all of them together, and is idle
// until the next one comes. So two reads go on at once, into slots kept for that, and the rest as
// soon as copies have left their slots, while the drive is busy with the two. No more slots than
// that: the memory of a few stays in the processors' caches, where it costs a virtual drive less
// (six slots of 512 KiB in turns 3.26 GB/s, twelve 2.91). Where copies take longer, the link being
// busy, so that the drive has to wait for them, slots are added, and taken away again when it had
// not to for long.
#include "transfer/direct_queue.hpp"
#include "transfer/slot_ring.hpp"

#include <algorithm>
#include <deque>

namespace hippogriff {

namespace {

constexpr std::uint32_t depth_max = DirectQueue::reads_per_depth * DepthController::tried_max;
constexpr std::size_t slots_wanted = depth_max + 4;
// A file of fewer pieces has no slots beside those of its requests: pinning them would take longer.
constexpr std::uint64_t pieces_for_spare_slots = 64;
constexpr std::size_t spare_slots = 2;
// After so many rounds in which the drive had all its requests, a slot is too many.
constexpr std::uint32_t calm_rounds = 16;
// A read that waits for a slot asks for one so often, more and more rarely while nothing moves.
constexpr std::chrono::microseconds look_again_min{50};
constexpr std::chrono::microseconds look_again_max{1000};

class DirectIoSend {
 public:
  DirectIoSend(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        slots_max_(direct_io_slots(transfer, slots_wanted)),
        depth_(make_depth_controller(
            transfer, static_cast<std::uint32_t>(std::min<std::size_t>(depth_max, slots_max_)))),
        share_(transfer, depth_),
        read_bytes_(request_bytes(transfer, DirectQueue::read_bytes, slots_max_)),
        slots_min_(slots_for_depth()),
        slots_(slots_min_),
        ring_(context,
              transfer,
              slots_max_,
              context.stream,
              request_room(transfer, read_bytes_),
              Pinbuffer::Growth::at_once),  // a drive that has too few requests is slower
        queue_(context, transfer, depth_max) {}

  LaneOutcome run() {
    LaneOutcome outcome = LaneOutcome::finished;
    while (claiming_ || queue_.in_flight() > 0 || ring_.copies_in_flight() > 0) {
      if (claiming_ && transfer_.stopping()) {
        claiming_ = false;
      } else if (claiming_ && context_.should_yield()) {
        claiming_ = false;
        outcome = LaneOutcome::yielded;
      }
      submit_reads();
      collect_reads();
      collect_copies();
    }
    return outcome;
  }

 private:
  [[nodiscard]] bool wants_slots() const {
    return claiming_ && queue_.in_flight() < depth_.depth();
  }

  [[nodiscard]] std::size_t slots_for_depth() const {
    const bool spare = transfer_.work.unclaimed_bytes() >= pieces_for_spare_slots * read_bytes_;
    return std::min(depth_.depth() + (spare ? spare_slots : 0), slots_max_);
  }

  [[nodiscard]] std::size_t slots_in_use() const {
    return queue_.in_flight() + arrived_.size() + ring_.copies_in_flight();
  }

  // The first for an idle drive at once, the rest together.
  void submit_reads() {
    short_of_slots_ = false;
    const bool idle = queue_.in_flight() == 0;
    while (wants_slots() && slots_in_use() < slots_ && prepare_read()) {
      if (idle && queue_.in_flight() == 1) {
        queue_.submit_reads();
      }
    }
    queue_.submit_reads();
  }

  bool prepare_read() {
    if (!ring_.has_idle()) {
      queue_.submit_reads();  // they need not wait while memory is pinned
    }
    Slot* slot = ring_.try_idle();
    if (slot == nullptr) {
      short_of_slots_ = true;
      claiming_ = claiming_ && !ring_.starved() && transfer_.work.unclaimed_bytes() > 0;
      return false;
    }
    const auto piece = transfer_.work.claim_cold(read_bytes_);
    if (piece) {
      slot->piece = *piece;
      claiming_ = attempt(transfer_, [&] {
        queue_.read(*piece, slot->memory, reinterpret_cast<std::uintptr_t>(slot), slot->bytes());
      });
    } else {
      claiming_ = false;
    }
    if (!claiming_) {
      ring_.make_idle(slot);
    }
    return claiming_;
  }

  void collect_reads() {
    if (queue_.in_flight() == 0) {
      return;
    }
    // The next thing to do comes with a read, unless one could be started but for a slot.
    const bool wants_one = wants_slots();
    const auto patience = wants_one ? look_again_ : std::chrono::milliseconds(20);
    auto reads = queue_.reap(patience);
    const bool nothing_moves = reads.empty() && short_of_slots_ && ring_.copies_in_flight() == 0;
    look_again_ = nothing_moves ? std::min(2 * look_again_, look_again_max) : look_again_min;
    if (!reads.empty()) {
      suit_slots(wants_one && slots_in_use() + reads.size() >= slots_);
    }
    for (auto& read : reads) {
      take_read(read);
    }
    retire_copied();
    submit_reads();
    start_copies();
  }

  // After reads ended; `short_of_them`: the drive was faster than the copies.
  void suit_slots(bool short_of_them) {
    if (short_of_them) {
      slots_ = std::min(slots_ + 1, slots_max_);
      calm_ = 0;
    } else if (++calm_ >= calm_rounds) {
      slots_ = std::max(slots_ - 1, slots_min_);
      calm_ = 0;
    }
  }

  void take_read(DirectQueue::Finished& read) {
    auto* slot = reinterpret_cast<Slot*>(read.tag);
    if (read.failure.status != Status::ok) {
      transfer_.fail(std::move(read.failure));
      ring_.make_idle(slot);
      return;
    }
    const std::uint32_t depth_before = depth_.depth();
    const auto now = Clock::now();
    depth_.completed(read.piece.size, now);
    share_.look(now);
    if (depth_.depth() != depth_before) {
      slots_min_ = slots_for_depth();
      slots_ = slots_min_;
    }
    transfer_.count_cold(read.piece.size);
    arrived_.push_back(slot);
  }

  void start_copies() {
    while (!arrived_.empty()) {
      Slot* slot = arrived_.front();
      arrived_.pop_front();
      ring_.start_to_device(slot, transfer_, slot->memory + queue_.lead_bytes(slot->piece));
    }
  }

  void retire(Slot* slot) {
    transfer_.piece_done(Lane::direct_io, slot->piece);
    ring_.make_idle(slot);
  }

  void retire_copied() {
    while (Slot* slot = ring_.take_copied()) {
      retire(slot);
    }
  }

  // Waits for one where there is nothing else to wait for.
  void collect_copies() {
    retire_copied();
    if (queue_.in_flight() == 0 && ring_.copies_in_flight() > 0) {
      retire(ring_.wait_copied("copy to device"));
    }
  }

  LaneContext& context_;
  Transfer& transfer_;
  const std::size_t slots_max_;
  DepthController depth_;
  DriveShare share_;
  const std::uint64_t read_bytes_;
  std::size_t slots_min_;
  std::size_t slots_;  // to use now, between that and slots_max_
  std::uint32_t calm_ = 0;
  std::deque<Slot*> arrived_;  // read, in a moment on their way to the device
  SlotRing ring_;              // outlives the queue, whose requests use its memory
  DirectQueue queue_;
  bool claiming_ = true;         // cold pieces may be left
  bool short_of_slots_ = false;  // the ring gave none of those to use now
  std::chrono::microseconds look_again_ = look_again_min;
};

}  // namespace

LaneOutcome send_direct_io(LaneContext& context, Transfer& transfer) {
  return DirectIoSend(context, transfer).run();
}

}  // namespace hippogriff
