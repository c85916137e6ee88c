// Device to pinbuffer by the copy engine, pinbuffer to page cache by the CPU, overlapped.
#include "storage/mapped_write.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/slot_ring.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace hippogriff {

namespace {

// The extent, mapped for writing: threads make the pages of a file in memory side by side there,
// while write() lets one in at a time. Holds nothing where that is not planned, or not possible.
class MappedTarget {
 public:
  explicit MappedTarget(Transfer& transfer) : file_(transfer.file()) {
    if (transfer.decision().choice().plan.buffered_channels <
            EngineShape::mapped_write_channels_min ||
        !file_.facts().in_memory) {
      return;
    }
    const Range extent = transfer.request().extent;
    begin_ = align_down(extent.offset, WorkMap::cut_bytes);
    try {
      mapping_ = file_.map({begin_, align_up(extent.end(), WorkMap::cut_bytes) - begin_},
                           FileAccess::read_write);
    } catch (const Error&) {
      mapping_ = {};
    }
  }

  ~MappedTarget() { file_.unmap(mapping_); }

  MappedTarget(const MappedTarget&) = delete;
  MappedTarget& operator=(const MappedTarget&) = delete;

  [[nodiscard]] bool mapped() const { return !mapping_.empty(); }

  // Only when mapped. Returns how many bytes got there, from the piece's start: none beyond the
  // file's end as it is now, which a mapping does not move, even where its last page is there.
  std::uint64_t write(Range piece, const std::byte* memory) const {
    const std::uint64_t end = std::min(piece.end(), file_.size_now());
    if (end <= piece.offset) {
      return 0;
    }
    const std::uint64_t put =
        write_into_mapping(mapping_.subspan(piece.offset - begin_, end - piece.offset), memory);
    // What is written needs no page table any more, and without it does not count as this process's
    // memory.
    const std::uint64_t first = align_down(piece.offset, WorkMap::cut_bytes);
    const std::uint64_t bytes = align_up(piece.end(), WorkMap::cut_bytes) - first;
    static_cast<void>(madvise(mapping_.data() + (first - begin_), bytes, MADV_DONTNEED));
    return put;
  }

 private:
  File& file_;
  std::uint64_t begin_ = 0;
  std::span<std::byte> mapping_;
};

void write_slot(LaneContext& context,
                Transfer& transfer,
                const MappedTarget& target,
                const Slot& slot) {
  static const SliceName name("write mapped");
  std::uint64_t put = 0;
  if (target.mapped()) {
    const TraceSlice slice(
        context.trace, context.cpu_track, name, slot.piece.offset, slot.piece.size);
    put = target.write(slot.piece, slot.memory);
  }
  if (put < slot.piece.size) {
    write_piece(
        context, transfer, {slot.piece.offset + put, slot.piece.size - put}, slot.memory + put);
  }
}

void write_oldest(LaneContext& context,
                  Transfer& transfer,
                  const MappedTarget& target,
                  SlotRing& ring) {
  Slot* slot = ring.wait_copied("copy to host");
  if (!transfer.stopping()) {
    attempt(transfer, [&] {
      write_slot(context, transfer, target, *slot);
      transfer.piece_done(Lane::buffered, slot->piece);
    });
  }
  ring.make_idle(slot);
}

}  // namespace

LaneOutcome recv_buffered(LaneContext& context, Transfer& transfer) {
  SlotRing ring(context, transfer, EngineShape::slots_per_channel, context.stream);
  const MappedTarget target(transfer);
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
      write_oldest(context, transfer, target, ring);
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
    write_oldest(context, transfer, target, ring);
  }
  return outcome;
}

}  // namespace hippogriff
