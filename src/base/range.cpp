// Sets of byte ranges as an ordered map of their ends.
#include "base/range.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

// Callers check what users give them; a range past 2^64 here is our bug.
void assert_representable(const Range& range) {
  HIPPO_ASSERT(range.size <= UINT64_MAX - range.offset);
}

}  // namespace

void RangeSet::insert(Range range) {
  assert_representable(range);
  if (range.empty()) {
    return;
  }
  std::uint64_t begin = range.offset;
  std::uint64_t end = range.end();
  auto next = ends_.lower_bound(begin);
  if (next != ends_.begin()) {
    const auto before = std::prev(next);
    if (before->second >= begin) {
      begin = before->first;
      end = std::max(end, before->second);
      next = ends_.erase(before);
    }
  }
  while (next != ends_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_.emplace_hint(next, begin, end);
}

void RangeSet::erase(Range range) {
  assert_representable(range);
  if (range.empty()) {
    return;
  }
  auto next = ends_.lower_bound(range.offset);
  if (next != ends_.begin()) {
    const auto before = std::prev(next);
    const std::uint64_t before_end = before->second;
    if (before_end > range.offset) {
      before->second = range.offset;
      if (before_end > range.end()) {
        ends_.emplace_hint(next, range.end(), before_end);
        return;
      }
    }
  }
  while (next != ends_.end() && next->first < range.end()) {
    const std::uint64_t next_end = next->second;
    next = ends_.erase(next);
    if (next_end > range.end()) {
      ends_.emplace_hint(next, range.end(), next_end);
      return;
    }
  }
}

bool RangeSet::overlaps(Range range) const {
  assert_representable(range);
  if (range.empty()) {
    return false;
  }
  const auto next = ends_.upper_bound(range.offset);
  if (next != ends_.begin() && std::prev(next)->second > range.offset) {
    return true;
  }
  return next != ends_.end() && next->first < range.end();
}

bool RangeSet::contains(Range range) const {
  assert_representable(range);
  if (range.empty()) {
    return true;
  }
  const auto next = ends_.upper_bound(range.offset);
  return next != ends_.begin() && std::prev(next)->second >= range.end();
}

std::vector<Range> RangeSet::missing_from(Range whole) const {
  assert_representable(whole);
  std::vector<Range> missing;
  std::uint64_t at = whole.offset;
  auto next = ends_.upper_bound(whole.offset);
  if (next != ends_.begin()) {
    at = std::max(at, std::prev(next)->second);
  }
  for (; at < whole.end() && next != ends_.end() && next->first < whole.end(); ++next) {
    missing.push_back({at, next->first - at});
    at = next->second;
  }
  if (at < whole.end()) {
    missing.push_back({at, whole.end() - at});
  }
  return missing;
}

std::vector<Range> RangeSet::ranges() const {
  std::vector<Range> all;
  all.reserve(ends_.size());
  for (const auto& [begin, end] : ends_) {
    all.push_back({begin, end - begin});
  }
  return all;
}

std::uint64_t RangeSet::total_bytes() const {
  std::uint64_t total = 0;
  for (const auto& [begin, end] : ends_) {
    total += end - begin;
  }
  return total;
}

}  // namespace hippogriff
