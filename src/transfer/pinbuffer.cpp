// Slots out of pinned segments.
#include "transfer/pinbuffer.hpp"

#include "transfer/device_wait.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hippogriff {

namespace {

// How often who waits asks whether it is still needed: nobody tells it of a transfer that is
// cancelled, or that others have finished.
constexpr std::chrono::milliseconds wanted_interval{20};
constexpr std::chrono::seconds refused_interval{1};

}  // namespace

Pinbuffer::Pinbuffer(Device& device, std::size_t limit_bytes)
    : device_(device), segments_max_(std::max<std::size_t>(1, limit_bytes / segment_bytes)) {}

Pinbuffer::~Pinbuffer() {
  HIPPO_ASSERT(free_.size() + abandoned_.size() == segment_count() * segment_slots);
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

std::byte* Pinbuffer::acquire(std::chrono::nanoseconds timeout,
                              const std::function<bool()>& wanted) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  std::size_t before_us = waiting_;
  while (free_.size() <= before_us) {
    if (!wanted()) {
      return nullptr;
    }
    if (may_grow()) {
      if (std::byte* slot = grow(lock); slot != nullptr) {
        return slot;
      }
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) {
      return nullptr;
    }
    await_slot(lock, std::min(end, now + wanted_interval));
    before_us = 0;
  }
  std::byte* slot = free_.back();
  free_.pop_back();
  slots_changed();
  return slot;
}

// A segment that is being allocated comes by itself.
void Pinbuffer::await_slot(std::unique_lock<std::mutex>& lock,
                           std::chrono::steady_clock::time_point end) {
  const std::size_t counted = growing_ ? 0 : 1;
  waiting_ += counted;
  slots_changed();
  slot_free_.wait_until(lock, end);
  waiting_ -= counted;
  slots_changed();
}

void Pinbuffer::slots_changed() noexcept {
  short_.store(waiting_ > free_.size(), std::memory_order_relaxed);
}

bool Pinbuffer::may_grow() const {
  return !growing_ && segment_count() < segments_max_ &&
         std::chrono::steady_clock::now() >= next_growth_;
}

// Allocates outside the lock: who has memory meanwhile goes on. A machine that will not pin more
// leaves us with what we have, and is asked again a while later.
std::byte* Pinbuffer::grow(std::unique_lock<std::mutex>& lock) {
  growing_ = true;
  std::byte* segment = nullptr;
  try {
    segment = new_segment(lock);
  } catch (...) {
    growing_ = false;
    slot_free_.notify_all();
    if (segment_count() == 0) {
      throw;
    }
    next_growth_ = std::chrono::steady_clock::now() + refused_interval;
    return nullptr;
  }
  growing_ = false;
  for (std::size_t index = 1; index < segment_slots; ++index) {
    free_.push_back(segment + index * slot_bytes);
  }
  slots_changed();
  slot_free_.notify_all();
  return segment;
}

// Holds the lock when it returns or throws. A driver that pins no memory at all leaves us ordinary
// memory; one that pins some, just that.
std::byte* Pinbuffer::new_segment(std::unique_lock<std::mutex>& lock) {
  free_.reserve(segments_max_ * segment_slots);
  abandoned_.reserve(segments_max_ * segment_slots);
  if (!refusal_.empty()) {
    return new_ordinary_segment();
  }
  segments_.reserve(segments_max_);
  lock.unlock();
  try {
    std::byte* segment = device_.allocate_pinned(segment_bytes);
    lock.lock();
    segments_.push_back(segment);
    return segment;
  } catch (const Error& error) {
    lock.lock();
    // Without a word of the driver's it is the machine that has no memory.
    if (!segments_.empty() || error.failure().device_status == 0) {
      throw;
    }
    std::byte* segment = new_ordinary_segment();
    refusal_ = error.what();
    return segment;
  } catch (...) {
    lock.lock();
    throw;
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
    slots_changed();
  }
  slot_free_.notify_one();
}

void Pinbuffer::abandon(std::byte* slot) noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(slot);
}

std::size_t Pinbuffer::allocated_bytes() const {
  const std::lock_guard lock(mutex_);
  return segment_count() * segment_bytes;
}

std::string Pinbuffer::refusal() const {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

}  // namespace hippogriff
