// Device to pinbuffer by the copy engine, pinbuffer to drive by O_DIRECT, several requests in
// flight. The edges that are not aligned go through the page cache.
#include "transfer/direct_writes.hpp"
#include "transfer/slot_ring.hpp"

namespace hippogriff {

namespace {

constexpr std::size_t copies_ahead = 2;

class DirectIoRecv {
 public:
  DirectIoRecv(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        slots_max_(direct_io_slots(transfer, DirectWrites::writes_max + copies_ahead)),
        write_bytes_(request_bytes(transfer, DirectQueue::write_bytes, slots_max_)),
        ring_(context, transfer, slots_max_, context.stream, request_room(transfer, write_bytes_)),
        writes_(context, transfer, Lane::direct_io) {}

  LaneOutcome run() {
    LaneOutcome outcome = LaneOutcome::finished;
    bool claiming = true;
    while (claiming || writes_.in_flight() > 0 || ring_.copies_in_flight() > 0) {
      if (claiming && transfer_.stopping()) {
        claiming = false;
      } else if (claiming && context_.should_yield()) {
        claiming = false;
        outcome = LaneOutcome::yielded;
      }
      // First the drive: it may have nothing to do.
      submit_writes();
      claiming = claiming && start_copies();
      if (writes_.in_flight() == 0) {
        submit_writes();
        // The next copies run beside these writes, which may be all at once what is waited for.
        claiming = claiming && start_copies();
      }
      collect_writes();
    }
    return outcome;
  }

 private:
  // False when no piece is left.
  bool start_copies() {
    while (ring_.copies_in_flight() < copies_ahead &&
           ring_.copies_in_flight() + writes_.in_flight() < writes_.depth() + copies_ahead) {
      Slot* slot = ring_.try_idle();
      if (slot == nullptr) {
        return !ring_.starved();
      }
      const auto piece = transfer_.work.claim_cold(write_bytes_);
      if (!piece) {
        ring_.make_idle(slot);
        return false;
      }
      slot->piece = *piece;
      ring_.start_to_host(
          slot, transfer_.address_of(piece->offset), slot->memory + writes_.lead_bytes(*piece));
    }
    return true;
  }

  void submit_writes() {
    while (ring_.copies_in_flight() > 0 && writes_.has_room()) {
      Slot* slot =
          writes_.in_flight() == 0 ? ring_.wait_copied("copy to host") : ring_.take_copied();
      if (slot == nullptr) {
        return;
      }
      bool under_way = false;
      if (!transfer_.stopping()) {
        attempt(transfer_, [&] {
          under_way = writes_.write(slot->piece,
                                    slot->memory + writes_.lead_bytes(slot->piece),
                                    reinterpret_cast<std::uintptr_t>(slot),
                                    slot->bytes());
        });
      }
      if (!under_way) {
        ring_.make_idle(slot);
      }
    }
  }

  void collect_writes() {
    if (writes_.in_flight() == 0) {
      return;
    }
    const bool copies_wait = ring_.copies_in_flight() > 0 && writes_.has_room();
    const auto patience =
        copies_wait ? std::chrono::microseconds(50) : std::chrono::milliseconds(20);
    for (const std::uint64_t tag : writes_.collect(patience)) {
      ring_.make_idle(reinterpret_cast<Slot*>(tag));
    }
  }

  LaneContext& context_;
  Transfer& transfer_;
  const std::size_t slots_max_;
  const std::uint64_t write_bytes_;
  SlotRing ring_;  // outlives the writes, which use its memory
  DirectWrites writes_;
};

}  // namespace

LaneOutcome recv_direct_io(LaneContext& context, Transfer& transfer) {
  return DirectIoRecv(context, transfer).run();
}

}  // namespace hippogriff
