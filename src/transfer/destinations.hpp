// Where the bytes of a send go when they go to several places: one region of a file, many arrays.
#pragma once

#include "base/range.hpp"
#include "device/device.hpp"

#include <algorithm>
#include <vector>

namespace hippogriff {

// A part of a file, and where its first byte goes.
struct Segment {
  Range range;
  DeviceAddress address;
};

// Ascending in the file and disjoint. Bytes between them go nowhere.
using Destinations = std::vector<Segment>;

// Sorts and leaves out what is empty. Throws Error(invalid_argument) when nothing is left, and
// where two parts overlap, in the file or in memory, or end beyond what offsets and addresses can
// say.
Destinations make_destinations(std::vector<Segment> segments);

// Calls `use(Segment)` for each part of a destination that lies in `piece`, ascending.
template <typename Use>
void for_each_part(const Destinations& destinations, Range piece, Use&& use) {
  auto segment = std::upper_bound(
      destinations.begin(),
      destinations.end(),
      piece.offset,
      [](std::uint64_t offset, const Segment& one) { return offset < one.range.end(); });
  for (; segment != destinations.end() && segment->range.offset < piece.end(); ++segment) {
    const std::uint64_t begin = std::max(segment->range.offset, piece.offset);
    const std::uint64_t end = std::min(segment->range.end(), piece.end());
    use(Segment{{begin, end - begin}, segment->address + (begin - segment->range.offset)});
  }
}

// Appends a segment, or lengthens the last one by it where they are neighbours in the file and in
// memory, as arrays from one pool often are: every copy costs a device some two microseconds,
// whatever its size. Both must be in one allocation of the device.
void append_joined(Destinations& joined, const Segment& segment);

}  // namespace hippogriff
