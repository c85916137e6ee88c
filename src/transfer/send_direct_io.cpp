// Drive to pinbuffer by O_DIRECT, several requests in flight, pinbuffer to device by the copy
// engine, overlapped. One thread keeps the drive busy; the depth follows what the drive gives.
#include "transfer/depth_controller.hpp"
#include "transfer/direct_queue.hpp"
#include "transfer/slot_ring.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint32_t depth_max = 16;
// Drives are as fast with requests of this size as with larger ones, and some faster.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 20;

class DirectIoSend {
 public:
  DirectIoSend(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        depth_(transfer.decision().choice().plan.direct_io_depth, depth_max),
        ring_(context, slots_wanted(transfer)),
        queue_(context, transfer, depth_max, {}) {}

  LaneOutcome run() {
    LaneOutcome outcome = LaneOutcome::finished;
    bool claiming = true;
    while (claiming || queue_.in_flight() > 0 || ring_.copies_in_flight() > 0) {
      if (claiming && transfer_.stopping()) {
        claiming = false;
      } else if (claiming && context_.should_yield()) {
        claiming = false;
        outcome = LaneOutcome::yielded;
      }
      claiming = claiming && submit_reads();
      collect_reads();
      collect_copies();
    }
    return outcome;
  }

 private:
  static std::size_t slots_wanted(const Transfer& transfer) {
    const std::uint64_t pieces = transfer.request().extent.size / Pinbuffer::slot_bytes + 2;
    return static_cast<std::size_t>(std::min<std::uint64_t>(pieces, depth_max + 4));
  }

  // False when no cold piece is left.
  bool submit_reads() {
    while (queue_.in_flight() < depth_.depth()) {
      Slot* slot = ring_.try_idle();
      if (slot == nullptr) {
        return true;
      }
      const auto piece = transfer_.work.claim_cold(request_bytes);
      if (!piece) {
        ring_.make_idle(slot);
        return false;
      }
      slot->piece = *piece;
      if (!attempt(transfer_, [&] {
            queue_.read(*piece, slot->memory, reinterpret_cast<std::uintptr_t>(slot));
          })) {
        ring_.make_idle(slot);
        return false;
      }
    }
    return true;
  }

  void collect_reads() {
    if (queue_.in_flight() == 0) {
      return;
    }
    const auto patience = ring_.copies_in_flight() > 0 ? std::chrono::microseconds(50)
                                                       : std::chrono::milliseconds(20);
    for (auto& read : queue_.reap(patience)) {
      auto* slot = reinterpret_cast<Slot*>(read.tag);
      if (read.failure.status != Status::ok) {
        transfer_.fail(std::move(read.failure));
        ring_.make_idle(slot);
        continue;
      }
      depth_.completed(read.piece.size, Clock::now());
      transfer_.count_cold(read.piece.size);
      ring_.start_to_device(slot,
                            transfer_.address_of(slot->piece.offset),
                            slot->memory + queue_.lead_bytes(slot->piece));
    }
  }

  void collect_copies() {
    const bool must_wait = queue_.in_flight() == 0;
    while (ring_.copies_in_flight() > 0) {
      Slot* slot = must_wait ? ring_.wait_copied("copy to device") : ring_.take_copied();
      if (slot == nullptr) {
        return;
      }
      transfer_.piece_done(Lane::direct_io, slot->piece);
      ring_.make_idle(slot);
      if (must_wait) {
        return;
      }
    }
  }

  LaneContext& context_;
  Transfer& transfer_;
  DepthController depth_;
  SlotRing ring_;  // outlives the queue, whose requests use its memory
  DirectQueue queue_;
};

}  // namespace

LaneOutcome send_direct_io(LaneContext& context, Transfer& transfer) {
  return DirectIoSend(context, transfer).run();
}

}  // namespace hippogriff
