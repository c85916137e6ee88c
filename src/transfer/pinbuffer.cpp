// Slots out of pinned segments.
#include "transfer/pinbuffer.hpp"

#include <algorithm>

namespace hippogriff {

Pinbuffer::Pinbuffer(Device& device, std::size_t limit_bytes)
    : device_(device), segments_max_(std::max<std::size_t>(1, limit_bytes / segment_bytes)) {}

Pinbuffer::~Pinbuffer() {
  HIPPO_ASSERT(free_.size() + abandoned_.size() == segments_.size() * segment_slots);
  for (std::byte* segment : segments_) {
    const auto inside = [segment](const std::byte* slot) {
      return slot >= segment && slot < segment + segment_bytes;
    };
    if (std::none_of(abandoned_.begin(), abandoned_.end(), inside)) {
      device_.release_pinned(segment);
    }
  }
}

std::byte* Pinbuffer::acquire(std::chrono::nanoseconds timeout) {
  std::unique_lock lock(mutex_);
  do {
    if (free_.empty() && segments_reserved_ < segments_max_) {
      if (std::byte* slot = grow(lock); slot != nullptr) {
        return slot;
      }
    }
    // Wakes also when the last segment that was on its way did not come.
    if (!slot_free_.wait_for(
            lock, timeout, [this] { return !free_.empty() || segments_reserved_ == 0; })) {
      return nullptr;
    }
  } while (free_.empty());
  std::byte* slot = free_.back();
  free_.pop_back();
  return slot;
}

// Allocates outside the lock: several lanes may grow at once. A machine that will not pin more
// leaves us with what we have.
std::byte* Pinbuffer::grow(std::unique_lock<std::mutex>& lock) {
  ++segments_reserved_;
  lock.unlock();
  std::byte* segment = nullptr;
  try {
    segment = device_.allocate_pinned(segment_bytes);
  } catch (const Error&) {
    lock.lock();
    --segments_reserved_;
    if (segments_reserved_ == 0) {
      slot_free_.notify_all();
      throw;
    }
    return nullptr;
  }
  lock.lock();
  segments_.push_back(segment);
  for (std::size_t index = 1; index < segment_slots; ++index) {
    free_.push_back(segment + index * slot_bytes);
  }
  slot_free_.notify_all();
  return segment;
}

void Pinbuffer::release(std::byte* slot) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(abandoned_.begin(), abandoned_.end(), slot) != abandoned_.end()) {
      return;
    }
    free_.push_back(slot);
  }
  slot_free_.notify_one();
}

void Pinbuffer::abandon(std::byte* slot) noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(slot);
}

std::size_t Pinbuffer::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return segments_.size() * segment_bytes;
}

}  // namespace hippogriff
