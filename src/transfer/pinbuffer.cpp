// Slots out of pinned segments.
#include "transfer/pinbuffer.hpp"

#include "transfer/device_wait.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hippogriff {

Pinbuffer::Pinbuffer(Device& device, std::size_t limit_bytes)
    : device_(device), segments_max_(std::max<std::size_t>(1, limit_bytes / segment_bytes)) {}

Pinbuffer::~Pinbuffer() {
  HIPPO_ASSERT(free_.size() + abandoned_.size() ==
               (segments_.size() + ordinary_segments_.size()) * segment_slots);
  const auto is_in_use = [this](const std::byte* segment) {
    return std::any_of(abandoned_.begin(), abandoned_.end(), [segment](const std::byte* slot) {
      return slot >= segment && slot < segment + segment_bytes;
    });
  };
  for (std::byte* segment : segments_) {
    if (!is_in_use(segment)) {
      device_.release_pinned(segment);
    }
  }
  for (auto& segment : ordinary_segments_) {
    if (is_in_use(segment->data())) {
      auto* const kept = segment.release();  // the device may still use it
      static_cast<void>(kept);
    }
  }
}

std::byte* Pinbuffer::acquire(std::chrono::nanoseconds timeout, Growth growth) {
  std::unique_lock lock(mutex_);
  do {
    if (growth == Growth::one_by_one) {
      slot_free_.wait_for(lock, device_timeout, [this] { return !free_.empty() || growing_ == 0; });
    }
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
  ++growing_;
  lock.unlock();
  std::byte* segment = nullptr;
  try {
    segment = new_segment();
  } catch (const Error&) {
    lock.lock();
    --segments_reserved_;
    --growing_;
    slot_free_.notify_all();
    if (segments_reserved_ == 0) {
      throw;
    }
    return nullptr;
  }
  lock.lock();
  --growing_;
  for (std::size_t index = 1; index < segment_slots; ++index) {
    free_.push_back(segment + index * slot_bytes);
  }
  slot_free_.notify_all();
  return segment;
}

// A driver that pins no memory at all leaves us ordinary memory; one that pins some, just that.
std::byte* Pinbuffer::new_segment() {
  {
    const std::lock_guard lock(mutex_);
    segments_.reserve(segments_max_);
    if (!refusal_.empty()) {
      return new_ordinary_segment();
    }
    ++pinning_;
  }
  try {
    std::byte* segment = device_.allocate_pinned(segment_bytes);
    const std::lock_guard lock(mutex_);
    --pinning_;
    segments_.push_back(segment);
    slot_free_.notify_all();
    return segment;
  } catch (const Error& error) {
    std::unique_lock lock(mutex_);
    --pinning_;
    slot_free_.notify_all();
    // Others that pin at the same moment may be luckier.
    slot_free_.wait_for(lock, device_timeout, [this] {
      return pinning_ == 0 || !segments_.empty() || !refusal_.empty();
    });
    // Without a word of the driver's it is the machine that has no memory.
    if (!segments_.empty() || error.failure().device_status == 0) {
      throw;
    }
    std::byte* segment = new_ordinary_segment();
    refusal_ = error.what();
    slot_free_.notify_all();
    return segment;
  }
}

std::byte* Pinbuffer::new_ordinary_segment() {
  try {
    auto pages = std::make_unique<PageMapping>(segment_bytes);
    pages->populate();
    ordinary_segments_.push_back(std::move(pages));
  } catch (const std::bad_alloc&) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "allocate the pinbuffer",
                 .object = "host",
                 .detail = "asked for " + std::to_string(segment_bytes) + " bytes"});
  }
  return ordinary_segments_.back()->data();
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
  return (segments_.size() + ordinary_segments_.size()) * segment_bytes;
}

std::string Pinbuffer::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

}  // namespace hippogriff
