// Edges, the queue, and what has ended.
#include "transfer/direct_writes.hpp"

#include <utility>

namespace hippogriff {

DirectWrites::DirectWrites(LaneContext& context, Transfer& transfer, Lane lane)
    : context_(context),
      transfer_(transfer),
      lane_(lane),
      depth_(make_depth_controller(transfer, writes_max)),
      share_(transfer, depth_),
      queue_(context, transfer, writes_max) {}

void DirectWrites::write_edge(Range edge, const std::byte* memory) {
  if (!edge.empty()) {
    write_piece(context_, transfer_, edge, memory);
    transfer_.piece_done(lane_, edge);
  }
}

bool DirectWrites::write(Range piece,
                         std::byte* memory,
                         std::uint64_t tag,
                         std::span<std::byte> buffer) {
  const Range middle = queue_.aligned_part(piece);
  const std::uint64_t head = middle.offset - piece.offset;
  write_edge({piece.offset, head}, memory);
  write_edge({middle.end(), piece.end() - middle.end()}, memory + head + middle.size);
  if (middle.empty()) {
    return false;
  }
  queue_.write(middle, memory + head, tag, buffer);
  return true;
}

std::vector<std::uint64_t> DirectWrites::collect(std::chrono::nanoseconds timeout) {
  std::vector<std::uint64_t> ended;
  for (auto& write : queue_.reap(timeout)) {
    if (write.failure.status != Status::ok) {
      transfer_.fail(std::move(write.failure));
    } else {
      const auto now = Clock::now();
      depth_.completed(write.piece.size, now);
      share_.look(now);
      transfer_.piece_done(lane_, write.piece);
    }
    ended.push_back(write.tag);
  }
  return ended;
}

}  // namespace hippogriff
