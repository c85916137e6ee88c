// Slots out of pinned segments.
#include "transfer/pinbuffer.hpp"

#include "transfer/device_wait.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace hippogriff {

namespace {

// How often who waits asks whether it is still needed: nobody tells it of a transfer that is
// cancelled, or that others have finished.
constexpr std::chrono::milliseconds wanted_interval = Pinbuffer::late;
constexpr std::chrono::seconds refused_interval{1};

}  // namespace

Pinbuffer::Pinbuffer(Device& device, std::size_t limit_bytes)
    : device_(device), segments_max_(std::max<std::size_t>(1, limit_bytes / segment_bytes)) {}

Pinbuffer::~Pinbuffer() {
  HIPPO_ASSERT(lent_ == 0);
  const auto is_in_use = [this](const std::byte* segment) {
    return std::any_of(abandoned_.begin(), abandoned_.end(), [segment](const std::byte* memory) {
      return memory >= segment && memory < segment + segment_bytes;
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
    if (may_grow() && wanted()) {
      if (std::byte* slot = grow(lock); slot != nullptr) {
        ++lent_;
        return slot;
      }
      continue;
    }
    if (!await_slot(lock, end, wanted)) {
      return nullptr;
    }
    before_us = 0;
  }
  std::byte* slot = free_.back();
  free_.pop_back();
  ++lent_;
  slots_changed();
  return slot;
}

std::byte* Pinbuffer::acquire_part(std::size_t bytes,
                                   std::chrono::nanoseconds timeout,
                                   Growth grows,
                                   const std::function<bool()>& wanted) {
  const auto begin = std::chrono::steady_clock::now();
  const auto end = begin + timeout;
  std::unique_lock lock(mutex_);
  std::size_t before_us = waiting_;
  if (before_us > 0 && timeout <= std::chrono::nanoseconds(0)) {
    return nullptr;  // else no slot would ever be whole for who waits for that
  }
  std::byte* part = part_of_cut_slot(bytes);
  while (part == nullptr) {
    std::byte* slot = nullptr;
    const bool pins = grows == Growth::at_once || segment_count() == 0 ||
                      std::chrono::steady_clock::now() >= begin + late;
    if (free_.size() > before_us) {
      slot = free_.back();
      free_.pop_back();
    } else if (pins && may_grow() && wanted()) {
      slot = grow(lock);
    } else if (await_slot(lock, end, wanted)) {
      before_us = 0;
    } else {
      return nullptr;
    }
    if (slot != nullptr) {
      cut_.push_back({.memory = slot, .part_bytes = bytes});
      cut_.back().free_parts = cut_.back().all_parts();
      slot_free_.notify_all();  // others may wait for parts, too
    }
    part = part_of_cut_slot(bytes);
  }
  ++lent_;
  slots_changed();
  return part;
}

std::byte* Pinbuffer::part_of_cut_slot(std::size_t bytes) {
  for (CutSlot& slot : cut_) {
    if (slot.part_bytes == bytes && slot.free_parts != 0) {
      const int index = std::countr_zero(slot.free_parts);
      slot.free_parts &= slot.free_parts - 1;
      return slot.memory + static_cast<std::size_t>(index) * bytes;
    }
  }
  return nullptr;
}

void Pinbuffer::prepare(std::size_t bytes, const std::function<bool()>& wanted) {
  std::unique_lock lock(mutex_);
  while (segment_count() * segment_bytes < bytes && wanted()) {
    if (growing_) {
      slot_free_.wait_for(lock, wanted_interval);
    } else if (!may_grow()) {
      return;
    } else {
      add_segment(lock);
    }
  }
}

void Pinbuffer::prepare_one_more(std::size_t bytes_max) {
  std::unique_lock lock(mutex_);
  if (may_grow() && segment_count() * segment_bytes < bytes_max) {
    add_segment(lock);
  }
}

void Pinbuffer::add_segment(std::unique_lock<std::mutex>& lock) {
  if (std::byte* slot = grow(lock); slot != nullptr) {
    free_.push_back(slot);
    slots_changed();
    slot_free_.notify_all();
  }
}

std::vector<Pinbuffer::CutSlot>::iterator Pinbuffer::cut_slot_of(const std::byte* memory) {
  return std::ranges::find_if(cut_, [memory](const CutSlot& slot) {
    return memory >= slot.memory && memory < slot.memory + slot_bytes;
  });
}

// A while. False when the time is over, or nobody wants one any more. A segment that is being
// allocated comes by itself.
bool Pinbuffer::await_slot(std::unique_lock<std::mutex>& lock,
                           std::chrono::steady_clock::time_point end,
                           const std::function<bool()>& wanted) {
  const auto now = std::chrono::steady_clock::now();
  if (!wanted() || now >= end) {
    return false;
  }
  const std::size_t counted = growing_ ? 0 : 1;
  waiting_ += counted;
  slots_changed();
  slot_free_.wait_until(lock, std::min(end, now + wanted_interval));
  waiting_ -= counted;
  slots_changed();
  return true;
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
  const std::size_t slots_max = segments_max_ * segment_slots;
  free_.reserve(slots_max);
  cut_.reserve(slots_max);
  abandoned_.reserve(slots_max * (slot_bytes / quarter_bytes));
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

void Pinbuffer::release(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  --lent_;
  if (std::ranges::find(abandoned_, memory) != abandoned_.end()) {
    return;
  }
  const auto slot = cut_slot_of(memory);
  if (slot == cut_.end()) {
    free_.push_back(memory);
  } else {
    slot->free_parts |= 1U << (static_cast<std::size_t>(memory - slot->memory) / slot->part_bytes);
    if (slot->free_parts == slot->all_parts()) {
      free_.push_back(slot->memory);
      cut_.erase(slot);
    }
  }
  slots_changed();
  slot_free_.notify_all();  // not everybody who waits can do with it, and a slot may do for several
}

void Pinbuffer::abandon(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(memory);
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
