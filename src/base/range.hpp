// Byte ranges and sets of them: what is done, what is missing, what is in flight.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace hippogriff {

// [offset, offset + size) in bytes.
struct Range {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;

  [[nodiscard]] std::uint64_t end() const { return offset + size; }

  [[nodiscard]] bool empty() const { return size == 0; }

  [[nodiscard]] bool overlaps(const Range& other) const {
    return offset < other.end() && other.offset < end();
  }

  friend bool operator==(const Range&, const Range&) = default;
};

constexpr std::uint64_t align_down(std::uint64_t value, std::uint64_t alignment) {
  return value / alignment * alignment;
}

constexpr std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return align_down(value + alignment - 1, alignment);
}

// Disjoint ranges, merged where they touch. Not thread-safe.
class RangeSet {
 public:
  void insert(Range range);
  void erase(Range range);
  [[nodiscard]] bool overlaps(Range range) const;
  [[nodiscard]] bool contains(Range range) const;
  // The parts of `whole` that are not in the set, ascending.
  [[nodiscard]] std::vector<Range> missing_from(Range whole) const;
  [[nodiscard]] std::vector<Range> ranges() const;
  [[nodiscard]] std::uint64_t total_bytes() const;

  [[nodiscard]] bool empty() const { return ends_.empty(); }

 private:
  std::map<std::uint64_t, std::uint64_t> ends_;  // offset -> end
};

}  // namespace hippogriff
