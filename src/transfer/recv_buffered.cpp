// Device to pinbuffer by the copy engine, pinbuffer to page cache by the CPU, overlapped.
#include "transfer/buffered_writes.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/slot_ring.hpp"

namespace hippogriff {

namespace {

void write_oldest(Transfer& transfer, const BufferedWrites& writes, SlotRing& ring) {
  Slot* slot = ring.wait_copied("copy to host");
  if (!transfer.stopping()) {
    attempt(transfer, [&] { writes.write(slot->piece, slot->memory); });
  }
  ring.make_idle(slot);
}

}  // namespace

LaneOutcome recv_buffered(LaneContext& context, Transfer& transfer) {
  SlotRing ring(context, transfer, EngineShape::slots_per_channel, context.stream);
  const BufferedWrites writes(context, transfer, Lane::buffered);
  const std::uint32_t channels = transfer.decision().choice().plan.buffered_channels;
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    Slot* slot = ring.try_idle();
    if (slot == nullptr && ring.starved()) {
      break;
    }
    if (slot == nullptr) {
      write_oldest(transfer, writes, ring);
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
    write_oldest(transfer, writes, ring);
  }
  return outcome;
}

}  // namespace hippogriff
