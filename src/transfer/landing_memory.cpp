// Alignment, and pages by mincore.
#include "transfer/landing_memory.hpp"

#include "base/page_size.hpp"
#include "transfer/work_map.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

namespace hippogriff {

namespace {

// A look takes half a microsecond; reading so much takes a hundred.
constexpr std::uint64_t bytes_for_each_look = std::uint64_t{1} << 20;
constexpr std::uint64_t looks_max = 16;

bool is_untouched(DeviceAddress address) {
  const std::uint64_t page = align_down(address.value, page_bytes());
  unsigned char present = 1;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): host memory, whose address is a number here
  return ::mincore(reinterpret_cast<void*>(page), 1, &present) == 0 && (present & 1U) == 0;
}

// Where a byte of the file goes, or the first behind it that goes anywhere.
DeviceAddress address_of(const Destinations& several, std::uint64_t offset) {
  const auto segment = std::ranges::lower_bound(
      several, offset, {}, [](const Segment& one) { return one.range.end() - 1; });
  if (segment == several.end()) {
    return several.back().address;
  }
  return segment->address + (offset > segment->range.offset ? offset - segment->range.offset : 0);
}

}  // namespace

bool lies_in_place(const TransferRequest& request) {
  const auto aligned = [](std::uint64_t offset, DeviceAddress address) {
    return offset % WorkMap::cut_bytes == address.value % WorkMap::cut_bytes;
  };
  if (request.destinations.empty()) {
    return aligned(request.extent.offset, request.address);
  }
  return std::ranges::all_of(request.destinations, [&](const Segment& each) {
    return aligned(each.range.offset, each.address);
  });
}

bool lies_in_new_memory(const TransferRequest& request, DeviceAddress allocated) {
  const std::uint64_t size = request.extent.size;
  const DeviceAddress begin = request.address.is_null() ? allocated : request.address;
  const Destinations& several = request.destinations;
  if (request.direction != Direction::send || size == 0 ||
      !request.device->info().can.host_addressable || (several.empty() && begin.is_null())) {
    return false;
  }
  const std::uint64_t looks = std::clamp<std::uint64_t>(size / bytes_for_each_look, 1, looks_max);
  std::uint64_t untouched = 0;
  for (std::uint64_t look = 0; look < looks; ++look) {
    const std::uint64_t within = size / looks * look + size / looks / 2;
    untouched += is_untouched(several.empty() ? begin + within
                                              : address_of(several, request.extent.offset + within))
                     ? 1
                     : 0;
  }
  return 2 * untouched > looks;
}

}  // namespace hippogriff
