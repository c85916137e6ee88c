// Page cache to pinbuffer by the CPU, pinbuffer to device by the copy engine, overlapped: each
// channel keeps a ring of slots, so that the next read runs while the last copy does.
#include "base/cache_demotion.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/outlook.hpp"
#include "transfer/slot_ring.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

void retire_oldest(SlotRing& ring, Transfer& transfer) {
  Slot* slot = ring.wait_copied("copy to device");
  transfer.piece_done(Lane::buffered, slot->piece);
  ring.make_idle(slot);
}

// Reads the piece into the slot, or the part that is in the page cache where the drive has a lane
// of its own for the rest.
void fill_slot(LaneContext& context, Transfer& transfer, Slot& slot) {
  const bool drive_has_lane = transfer.decision().choice().plan.direct_io_depth > 0;
  if (!drive_has_lane) {
    read_piece(context, transfer, slot.piece, slot.memory);
    return;
  }
  static const SliceName name("read");
  const TraceSlice slice(
      context.trace, context.cpu_track, name, slot.piece.offset, slot.piece.size);
  const std::uint64_t got = read_cached_piece(transfer, slot.piece, slot.memory);
  const Range rest{slot.piece.offset + got, slot.piece.size - got};
  if (got > 0 && got < slot.piece.size) {
    give_back_unread(transfer.work, transfer.file(), rest);
  } else {
    // Nothing came: perhaps this file never says what is there.
    transfer.work.give_back(rest, Warmth::cold);
  }
  slot.piece.size = got;
}

// Parts of slots where whole ones would have to be pinned first: a piece of 512 KiB costs less,
// unless each waits for a drive.
std::size_t room_of_pieces(const LaneContext& context, const Transfer& transfer) {
  if (transfer.decision().channels_wait) {
    return Pinbuffer::slot_bytes;
  }
  const bool has_slots = context.pinbuffer.allocated_bytes() >= EngineShape::pinned_bytes_enough;
  return stays_in_caches(transfer) || (is_short(transfer) && !has_slots) ? Pinbuffer::quarter_bytes
                                                                         : Pinbuffer::slot_bytes;
}

}  // namespace

LaneOutcome send_buffered(LaneContext& context, Transfer& transfer) {
  const bool in_caches = stays_in_caches(transfer);
  const std::size_t room = room_of_pieces(context, transfer);
  SlotRing ring(context, transfer, EngineShape::slots_per_channel, context.to_device, room);
  const std::uint32_t channels = transfer.decision().choice().plan.buffered_channels;
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    Slot* slot = ring.try_idle();
    if (slot == nullptr && transfer.work.unclaimed_bytes() == 0) {
      transfer.ends_soon();
    }
    if (slot == nullptr && ring.starved()) {
      break;
    }
    if (slot == nullptr) {
      retire_oldest(ring, transfer);
      continue;
    }
    const auto piece = transfer.work.claim_warm(std::min(piece_bytes(transfer, channels), room));
    if (!piece) {
      ring.make_idle(slot);
      transfer.ends_soon();
      break;
    }
    slot->piece = *piece;
    if (!attempt(transfer, [&] { fill_slot(context, transfer, *slot); }) || slot->piece.empty()) {
      ring.make_idle(slot);
      continue;
    }
    // A GPU reads 25 GB/s out of many cores' caches, 53 from where this moves them (an H200
    // machine).
    if (in_caches) {
      demote_from_own_caches(slot->bytes().first(slot->piece.size));
    }
    ring.start_to_device(slot, transfer, slot->memory);
  }
  while (ring.copies_in_flight() > 0) {
    retire_oldest(ring, transfer);
  }
  return outcome;
}

}  // namespace hippogriff
