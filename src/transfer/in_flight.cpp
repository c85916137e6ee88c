// Overlap by address; among reads, looking back no further than the longest in flight.
#include "transfer/in_flight.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace hippogriff {

bool InFlight::written(Range range) const {
  const auto after = writes_.lower_bound(range.end());
  return after != writes_.begin() && std::prev(after)->second.end > range.offset;
}

bool InFlight::read(Range range) const {
  const std::uint64_t first =
      range.offset > longest_read_bytes_ ? range.offset - longest_read_bytes_ : 0;
  for (auto entry = reads_.lower_bound({first, 0});
       entry != reads_.end() && entry->first.first < range.end();
       ++entry) {
    if (entry->second > range.offset) {
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
  const Range range{address.value, size_bytes};
  const bool writes = use == MemoryUse::writes && size_bytes > 0;
  if (written(range) || (writes && read(range))) {
    throw Error({.status = Status::busy,
                 .operation = "start a transfer",
                 .detail = "its device memory (" + std::to_string(size_bytes) +
                           " bytes) overlaps a transfer in flight; wait for that one first"});
  }
  const std::uint64_t number = next_number_++;
  if (writes) {
    writes_.emplace(range.offset, Write{range.end(), number});
  } else {
    reads_.emplace(std::pair{range.offset, number}, range.end());
    longest_read_bytes_ = std::max(longest_read_bytes_, size_bytes);
  }
  return number;
}

void InFlight::end(DeviceAddress address, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto write = writes_.find(address.value);
  if (write != writes_.end() && write->second.number == number) {
    writes_.erase(write);
  } else {
    reads_.erase({address.value, number});
  }
  if (reads_.empty()) {
    longest_read_bytes_ = 0;
    if (writes_.empty()) {
      emptied_.notify_all();
    }
  }
}

void InFlight::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool InFlight::wait_empty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline, [this] { return writes_.empty() && reads_.empty(); });
}

bool InFlight::uses(DeviceAddress address, std::uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  const Range range{address.value, size_bytes};
  return written(range) || read(range);
}

}  // namespace hippogriff
