// RangeSet against a bitmap: the input is a list of (operation, offset, size) in a space of 256.
#include "base/error.hpp"
#include "base/range.hpp"

#include <bitset>
#include <cstddef>
#include <cstdint>

namespace {

using hippogriff::Range;
using hippogriff::RangeSet;

constexpr std::size_t space = 256;
using Bitmap = std::bitset<space>;

Bitmap bits_of(const Range& range) {
  Bitmap bits;
  for (std::uint64_t at = range.offset; at < range.end(); ++at) {
    bits.set(at);
  }
  return bits;
}

void check_queries(const RangeSet& set, const Bitmap& bitmap, const Range& range) {
  const Bitmap asked = bits_of(range);
  HIPPO_ASSERT(set.overlaps(range) == (asked & bitmap).any());
  HIPPO_ASSERT(set.contains(range) == ((asked & bitmap) == asked));
  Bitmap missing;
  std::uint64_t previous_end = range.offset;
  for (const Range& part : set.missing_from(range)) {
    HIPPO_ASSERT(!part.empty() && part.offset >= previous_end);
    previous_end = part.end();
    missing |= bits_of(part);
  }
  HIPPO_ASSERT(missing == (asked & ~bitmap));
}

void check_shape(const RangeSet& set, const Bitmap& bitmap) {
  Bitmap ours;
  std::uint64_t previous_end = 0;
  bool first = true;
  for (const Range& part : set.ranges()) {
    HIPPO_ASSERT(!part.empty() && (first || part.offset > previous_end));
    first = false;
    previous_end = part.end();
    ours |= bits_of(part);
  }
  HIPPO_ASSERT(ours == bitmap);
  HIPPO_ASSERT(set.total_bytes() == bitmap.count());
  HIPPO_ASSERT(set.empty() == bitmap.none());
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  RangeSet set;
  Bitmap bitmap;
  for (std::size_t at = 0; at + 3 <= size_bytes; at += 3) {
    const std::uint64_t offset = data[at + 1];
    const Range range{offset, data[at + 2] % (space - offset + 1)};
    switch (data[at] % 3) {
      case 0:
        set.insert(range);
        bitmap |= bits_of(range);
        break;
      case 1:
        set.erase(range);
        bitmap &= ~bits_of(range);
        break;
      default:
        check_queries(set, bitmap, range);
    }
    check_shape(set, bitmap);
  }
  return 0;
}
