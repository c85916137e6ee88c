// Pinned pieces within a budget.
#include "transfer/parking.hpp"

namespace hippogriff {

Parking::Parking(Device& device, std::uint64_t budget_bytes)
    : device_(device), budget_bytes_(budget_bytes) {
  kept_.reserve(kept_pieces_max);  // release() must not throw
}

Parking::~Parking() {
  HIPPO_ASSERT(used_bytes_ == 0);
  for (std::byte* piece : kept_) {
    device_.release_pinned(piece);
  }
}

std::byte* Parking::acquire() {
  {
    const std::lock_guard lock(mutex_);
    if (used_bytes_ + piece_bytes > budget_bytes_) {
      return nullptr;
    }
    used_bytes_ += piece_bytes;
    if (!kept_.empty()) {
      std::byte* piece = kept_.back();
      kept_.pop_back();
      return piece;
    }
  }
  try {
    return device_.allocate_pinned(piece_bytes);
  } catch (...) {
    // The machine will not pin more: then what we have is the budget.
    const std::lock_guard lock(mutex_);
    used_bytes_ -= piece_bytes;
    return nullptr;
  }
}

void Parking::release(std::byte* piece, Reuse reuse) noexcept {
  {
    const std::lock_guard lock(mutex_);
    used_bytes_ -= piece_bytes;
    if (reuse == Reuse::no) {
      return;
    }
    if (kept_.size() < kept_pieces_max) {
      kept_.push_back(piece);
      return;
    }
  }
  device_.release_pinned(piece);
}

void Parking::count(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ += bytes;
}

void Parking::give_back(std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  used_bytes_ -= bytes;
}

std::uint64_t Parking::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

}  // namespace hippogriff
