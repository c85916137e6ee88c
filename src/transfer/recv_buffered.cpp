// Device to pinbuffer by the copy engine, pinbuffer to page cache by the CPU, overlapped.
#include "transfer/cost_model.hpp"
#include "transfer/slot_ring.hpp"

#include <sys/mman.h>

#include <cstring>

namespace hippogriff {

namespace {

constexpr std::size_t slots_per_channel = 3;

// Through a mapping: threads make the pages of a file in memory side by side. Only for a file that
// nobody else can truncate, and only into pages that are there: touching others could be fatal.
bool write_through_mapping(LaneContext& context, Transfer& transfer, const Slot& slot) {
  static const SliceName name("write mapped");
  const TraceSlice slice(
      context.trace, context.cpu_track, name, slot.piece.offset, slot.piece.size);
  const std::uint64_t begin = align_down(slot.piece.offset, WorkMap::cut_bytes);
  const std::uint64_t end = align_up(slot.piece.end(), WorkMap::cut_bytes);
  const auto mapping = transfer.file().map({begin, end - begin}, FileAccess::read_write);
  const bool made = madvise(mapping.data(), mapping.size(), MADV_POPULATE_WRITE) == 0;
  if (made) {
    std::memcpy(mapping.data() + (slot.piece.offset - begin), slot.memory, slot.piece.size);
  }
  transfer.file().unmap(mapping);
  return made;
}

bool maps_file(const Transfer& transfer) {
  return transfer.request().replaces != nullptr && transfer.file().facts().in_memory &&
         transfer.decision().choice().plan.buffered_channels >=
             EngineShape::mapped_write_channels_min;
}

void write_slot(LaneContext& context, Transfer& transfer, const Slot& slot) {
  if (!maps_file(transfer) || !write_through_mapping(context, transfer, slot)) {
    write_piece(context, transfer, slot.piece, slot.memory);
  }
}

void write_oldest(LaneContext& context, Transfer& transfer, SlotRing& ring) {
  Slot* slot = ring.wait_copied("copy to host");
  if (!transfer.stopping()) {
    attempt(transfer, [&] {
      write_slot(context, transfer, *slot);
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
