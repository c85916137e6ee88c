// Splits a piece into what O_DIRECT may carry and the edges it may not.
#include "transfer/piece_io.hpp"

namespace hippogriff {

bool PieceIo::aligned(std::uint64_t offset, const std::byte* memory) const {
  const std::uint64_t alignment = WorkMap::cut_bytes;
  return transfer_.file().facts().direct &&
         offset % alignment == reinterpret_cast<std::uintptr_t>(memory) % alignment;
}

void PieceIo::read(Range piece, std::byte* memory, Warmth warmth) {
  if (queue_ == nullptr && warmth == Warmth::cold && aligned(piece.offset, memory)) {
    queue_ = std::make_unique<DirectQueue>(context_, transfer_, 1);
  }
  const bool direct = warmth == Warmth::cold && queue_ != nullptr && aligned(piece.offset, memory);
  const Range middle = direct ? queue_->aligned_part(piece) : Range{piece.offset, 0};
  if (middle.empty()) {
    read_piece(context_, transfer_, piece, memory);
    return;
  }
  const std::uint64_t head = middle.offset - piece.offset;
  read_piece(context_, transfer_, {piece.offset, head}, memory);
  queue_->read(middle, memory + head, 0);
  finish_direct();
  read_piece(
      context_, transfer_, {middle.end(), piece.end() - middle.end()}, memory + head + middle.size);
}

void PieceIo::write(Range piece, std::byte* memory) {
  const bool direct = aligned(piece.offset, memory);
  if (queue_ == nullptr && direct) {
    queue_ = std::make_unique<DirectQueue>(context_, transfer_, 1);
  }
  const Range middle = direct ? queue_->aligned_part(piece) : Range{piece.offset, 0};
  if (middle.empty()) {
    write_piece(context_, transfer_, piece, memory);
    return;
  }
  const std::uint64_t head = middle.offset - piece.offset;
  write_piece(context_, transfer_, {piece.offset, head}, memory);
  queue_->write(middle, memory + head, 0);
  finish_direct();
  write_piece(
      context_, transfer_, {middle.end(), piece.end() - middle.end()}, memory + head + middle.size);
}

void PieceIo::finish_direct() {
  Failure failure;
  while (queue_->in_flight() > 0) {
    for (auto& finished : queue_->reap(std::chrono::milliseconds(100))) {
      failure = std::move(finished.failure);
    }
  }
  if (failure.status != Status::ok) {
    throw Error(std::move(failure));
  }
}

}  // namespace hippogriff
