// A mapping where that is planned, write() for what it does not take.
#include "transfer/buffered_writes.hpp"

#include "storage/mapped_write.hpp"
#include "transfer/cost_model.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace hippogriff {

MappedTarget::MappedTarget(Transfer& transfer) : file_(transfer.file()) {
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

MappedTarget::~MappedTarget() {
  file_.unmap(mapping_);
}

std::uint64_t MappedTarget::write(Range piece, const std::byte* memory) const {
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

void BufferedWrites::write(Range piece, const std::byte* memory) const {
  static const SliceName name("write mapped");
  std::uint64_t put = 0;
  if (target_.mapped()) {
    const TraceSlice slice(context_.trace, context_.cpu_track, name, piece.offset, piece.size);
    put = target_.write(piece, memory);
  }
  if (put < piece.size) {
    write_piece(context_, transfer_, {piece.offset + put, piece.size - put}, memory + put);
  }
  transfer_.piece_done(lane_, piece);
}

}  // namespace hippogriff
