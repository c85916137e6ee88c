// A queue, and who works at its two ends.
#include "transfer/parked_pieces.hpp"

#include <cstring>
#include <utility>

namespace hippogriff {

void ParkedPieces::add(ParkedPiece piece) {
  {
    const std::lock_guard lock(mutex_);
    pieces_.push_back(piece);
    bytes_ += piece.size_bytes;
  }
  changed_.notify_all();
}

std::optional<ParkedPiece> ParkedPieces::take_newest() {
  const std::lock_guard lock(mutex_);
  std::optional<ParkedPiece> piece = std::exchange(last_, std::nullopt);
  if (!piece && !pieces_.empty()) {
    piece = pieces_.back();
    pieces_.pop_back();
  }
  if (piece) {
    bytes_ -= piece->size_bytes;
  }
  return piece;
}

bool ParkedPieces::begin_draining() {
  const std::lock_guard lock(mutex_);
  return !std::exchange(draining_, true);
}

void ParkedPieces::end_draining() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = false;
  }
  changed_.notify_all();
}

bool ParkedPieces::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

void ParkedPieces::add_last(ParkedPiece piece) {
  {
    const std::lock_guard lock(mutex_);
    last_ = piece;
    bytes_ += piece.size_bytes;
  }
  changed_.notify_all();
}

std::byte* ParkedPieces::take_spare() {
  const std::lock_guard lock(mutex_);
  std::byte* place = spare_;
  if (place != nullptr) {
    std::memcpy(static_cast<void*>(&spare_), place, sizeof spare_);
  }
  return place;
}

bool ParkedPieces::await_spare(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  const auto to_come = [this] { return writers_ > 0 && (being_written_ > 0 || !pieces_.empty()); };
  changed_.wait_for(lock, time, [&] { return spare_ != nullptr || !to_come(); });
  return spare_ != nullptr || to_come();
}

bool ParkedPieces::begin_writing(std::uint32_t most) {
  const std::lock_guard lock(mutex_);
  if (writers_ >= most) {
    return false;
  }
  ++writers_;
  return true;
}

void ParkedPieces::end_writing() {
  {
    const std::lock_guard lock(mutex_);
    --writers_;
  }
  changed_.notify_all();
}

std::optional<ParkedPiece> ParkedPieces::take_to_write(std::uint64_t missing_bytes) {
  const std::lock_guard lock(mutex_);
  std::optional<ParkedPiece> piece;
  if (!pieces_.empty()) {
    piece = pieces_.front();
    pieces_.pop_front();
  } else if (last_ && last_->size_bytes == missing_bytes) {
    piece = std::exchange(last_, std::nullopt);
  }
  if (piece) {
    bytes_ -= piece->size_bytes;
    ++being_written_;
  }
  return piece;
}

bool ParkedPieces::await_piece(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return !pieces_.empty() || last_ || !draining_; });
  return !pieces_.empty() || draining_;
}

void ParkedPieces::written(std::byte* place) {
  {
    const std::lock_guard lock(mutex_);
    std::memcpy(place, static_cast<const void*>(&spare_), sizeof spare_);
    spare_ = place;
    --being_written_;
  }
  changed_.notify_all();
}

}  // namespace hippogriff
