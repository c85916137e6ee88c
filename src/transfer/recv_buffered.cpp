// Device to pinbuffer by the copy engine, pinbuffer to page cache by the CPU, overlapped.
#include "transfer/slot_ring.hpp"

namespace hippogriff {

namespace {

constexpr std::size_t slots_per_channel = 3;

void write_oldest(LaneContext& context, Transfer& transfer, SlotRing& ring) {
  Slot* slot = ring.wait_copied("copy to host");
  if (!transfer.stopping()) {
    attempt(transfer, [&] {
      write_piece(context, transfer, slot->piece, slot->memory);
      transfer.piece_done(Lane::buffered, slot->piece);
    });
  }
  ring.make_idle(slot);
}

}  // namespace

LaneOutcome recv_buffered(LaneContext& context, Transfer& transfer) {
  SlotRing ring(context, slots_per_channel);
  const std::uint32_t channels = transfer.decision().choice().plan.buffered_channels;
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    Slot* slot = ring.try_idle();
    if (slot == nullptr) {
      write_oldest(context, transfer, ring);
      continue;
    }
    const auto piece = transfer.work.claim_warm(piece_bytes(transfer, channels));
    if (!piece) {
      ring.make_idle(slot);
      break;
    }
    slot->piece = *piece;
    ring.start_to_host(slot, transfer.address_of(piece->offset), slot->memory);
  }
  while (ring.copies_in_flight() > 0) {
    write_oldest(context, transfer, ring);
  }
  return outcome;
}

}  // namespace hippogriff
