// Overlap by address; among reads, looking back no further than the longest in flight.
#include "transfer/in_flight.hpp"

#include <algorithm>
#include <iterator>
#include <string>

namespace hippogriff {
namespace {

[[noreturn]] void fail_busy(std::uint64_t size_bytes) {
  throw Error({.status = Status::busy,
               .operation = "start a transfer",
               .detail = "its device memory (" + std::to_string(size_bytes) +
                         " bytes) overlaps a transfer in flight; wait for that one first"});
}

// Sorts ranges and puts those together that touch or overlap; those of no bytes go.
void merge(std::vector<Range>& ranges) {
  if (!std::ranges::is_sorted(ranges, {}, &Range::offset)) {
    std::ranges::sort(ranges, {}, &Range::offset);
  }
  std::size_t count = 0;
  for (const Range& range : ranges) {
    if (range.empty()) {
      continue;
    }
    if (count > 0 && range.offset <= ranges[count - 1].end()) {
      Range& last = ranges[count - 1];
      last.size = std::max(last.end(), range.end()) - last.offset;
    } else {
      ranges[count++] = range;
    }
  }
  ranges.resize(count);
}

}  // namespace

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
  return read_with_others(range);
}

bool InFlight::read_with_others(Range range) const {
  return std::ranges::any_of(reads_together_, [range](const auto& entry) {
    const std::vector<Range>& ranges = entry.second;
    const auto after = std::ranges::lower_bound(ranges, range.end(), {}, &Range::offset);
    return after != ranges.begin() && std::prev(after)->end() > range.offset;
  });
}

void InFlight::refuse_when_closed() const {
  if (closed_) {
    throw Error({.status = Status::not_initialized,
                 .operation = "start a transfer",
                 .detail = "the runtime is shutting down"});
  }
}

void InFlight::tell_when_empty() {
  if (reads_.empty() && reads_together_.empty() && writes_.empty()) {
    emptied_.notify_all();
  }
}

std::uint64_t InFlight::begin(DeviceAddress address, std::uint64_t size_bytes, MemoryUse use) {
  const std::lock_guard lock(mutex_);
  refuse_when_closed();
  const Range range{address.value, size_bytes};
  const bool writes = use == MemoryUse::writes && size_bytes > 0;
  if (written(range) || (writes && read(range))) {
    fail_busy(size_bytes);
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
    tell_when_empty();
  }
}

std::uint64_t InFlight::begin_reads(std::vector<Range> ranges) {
  merge(ranges);
  const std::lock_guard lock(mutex_);
  refuse_when_closed();
  for (const Range& range : ranges) {
    if (written(range)) {
      fail_busy(range.size);
    }
  }
  const std::uint64_t number = next_number_++;
  reads_together_.emplace(number, std::move(ranges));
  return number;
}

void InFlight::end_reads(std::uint64_t number) {
  std::vector<Range> ended;  // freed when nobody waits for the lock any more
  const std::lock_guard lock(mutex_);
  const auto entry = reads_together_.find(number);
  ended.swap(entry->second);
  reads_together_.erase(entry);
  tell_when_empty();
}

void InFlight::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

bool InFlight::wait_empty(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_until(lock, deadline, [this] {
    return writes_.empty() && reads_.empty() && reads_together_.empty();
  });
}

bool InFlight::uses(DeviceAddress address, std::uint64_t size_bytes) const {
  const std::lock_guard lock(mutex_);
  const Range range{address.value, size_bytes};
  return written(range) || read(range);
}

}  // namespace hippogriff
