// Overlap by address, looking back no further than the longest transfer in flight.
#include "transfer/in_flight.hpp"

#include <algorithm>
#include <string>

namespace hippogriff {

template <typename Found>
bool InFlight::any_overlap(Range range, Found&& found) const {
  const std::uint64_t first = range.offset > longest_bytes_ ? range.offset - longest_bytes_ : 0;
  for (auto entry = entries_.lower_bound({first, 0});
       entry != entries_.end() && entry->first.first < range.end();
       ++entry) {
    if (entry->second.end > range.offset && found(entry->second)) {
      return true;
    }
  }
  return false;
}

std::uint64_t InFlight::begin(DeviceAddress address, std::uint64_t size_bytes, MemoryUse use) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    throw Error({.status = Status::not_initialized,
                 .operation = "start a transfer",
                 .detail = "the runtime is shutting down"});
  }
  const bool clash = any_overlap({address.value, size_bytes}, [use](const Entry& entry) {
    return use == MemoryUse::writes || entry.use == MemoryUse::writes;
  });
  if (clash) {
    throw Error({.status = Status::busy,
                 .operation = "start a transfer",
                 .detail = "its device memory (" + std::to_string(size_bytes) +
                           " bytes) overlaps a transfer in flight; wait for that one first"});
  }
  const std::uint64_t number = next_number_++;
  entries_.emplace(std::pair{address.value, number}, Entry{address.value + size_bytes, use});
  longest_bytes_ = std::max(longest_bytes_, size_bytes);
  return number;
}

void InFlight::end(DeviceAddress address, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  entries_.erase({address.value, number});
  if (entries_.empty()) {
    longest_bytes_ = 0;
    emptied_.notify_all();
  }
}

void InFlight::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool InFlight::wait_empty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline, [this] { return entries_.empty(); });
}

bool InFlight::uses(DeviceAddress address, std::uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  return any_overlap({address.value, size_bytes}, [](const Entry&) { return true; });
}

}  // namespace hippogriff
