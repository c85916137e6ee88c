// Checks on what a caller gave.
#include "transfer/destinations.hpp"

#include "base/error.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace hippogriff {

namespace {

[[noreturn]] void throw_wrong(const Segment& segment, std::string detail) {
  throw Error({.status = Status::invalid_argument,
               .operation = "send to several destinations",
               .offset = segment.range.offset,
               .detail = std::move(detail)});
}

void check(const Segment& segment) {
  const Range range = segment.range;
  if (range.offset > INT64_MAX || range.size > INT64_MAX - range.offset) {
    throw_wrong(segment, "offset and size exceed what a file can have");
  }
  if (segment.address.is_null()) {
    throw_wrong(segment, "its pointer is NULL");
  }
  if (range.size > UINT64_MAX - segment.address.value) {
    throw_wrong(segment, "pointer and size exceed what addresses can be");
  }
}

// Begin and end, for both ways to sort.
template <typename Begin>
void check_disjoint(const Destinations& destinations, Begin&& begin, const char* where) {
  for (std::size_t index = 1; index < destinations.size(); ++index) {
    const Segment& before = destinations[index - 1];
    if (begin(destinations[index]) - begin(before) < before.range.size) {
      throw_wrong(
          destinations[index],
          "it overlaps the part at offset " + std::to_string(before.range.offset) + " " + where);
    }
  }
}

}  // namespace

Destinations make_destinations(std::vector<Segment> segments) {
  std::erase_if(segments, [](const Segment& segment) { return segment.range.empty(); });
  if (segments.empty()) {
    throw Error({.status = Status::invalid_argument,
                 .operation = "send to several destinations",
                 .detail = "there is no byte to send"});
  }
  std::for_each(segments.begin(), segments.end(), check);
  const auto address = [](const Segment& segment) { return segment.address.value; };
  std::ranges::sort(segments, {}, address);
  check_disjoint(segments, address, "in memory");
  const auto offset = [](const Segment& segment) { return segment.range.offset; };
  std::ranges::sort(segments, {}, offset);
  check_disjoint(segments, offset, "in the file");
  return segments;
}

void append_joined(Destinations& joined, const Segment& segment) {
  if (!joined.empty()) {
    Segment& last = joined.back();
    if (segment.range.offset == last.range.end() &&
        segment.address.value - last.address.value == last.range.size) {
      last.range.size += segment.range.size;
      return;
    }
  }
  joined.push_back(segment);
}

}  // namespace hippogriff
