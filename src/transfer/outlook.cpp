// Residency by sampling and by halving.
#include "transfer/outlook.hpp"

#include "storage/mapped_write.hpp"
#include "transfer/cufile.hpp"

#include <fcntl.h>

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint64_t look_whole_bytes = std::uint64_t{4} << 20;
constexpr std::uint64_t sample_bytes = std::uint64_t{64} << 10;
constexpr std::uint64_t samples_min = 16;
constexpr std::uint64_t samples_max = 64;
// A look takes two microseconds; reading so much takes a thousand.
constexpr std::uint64_t bytes_for_each_sample = std::uint64_t{64} << 20;
constexpr std::uint64_t grain_bytes = std::uint64_t{512} << 10;

std::string why_not_map(const Device& device, const FileFacts& file, Direction direction) {
  if (direction == Direction::send) {
    return device.info().can.registers_read_only
               ? ""
               : "the device cannot register read-only pages of a file";
  }
  if (!file.in_memory) {
    return "only files in memory (tmpfs) are mapped for writing";
  }
  return device.info().can.registers_read_write ? ""
                                                : "the device cannot register pages for writing";
}

void append(std::vector<WarmRange>& runs, Range range, Warmth warmth) {
  if (!runs.empty() && runs.back().warmth == warmth && runs.back().range.end() == range.offset) {
    runs.back().range.size += range.size;
  } else {
    runs.push_back({range, warmth});
  }
}

void classify(File& file, Range range, std::vector<WarmRange>& runs) {
  const auto residency = file.residency(range);
  if (!residency || residency->resident_bytes == 0) {
    append(runs, range, Warmth::cold);
    return;
  }
  if (residency->resident_bytes >= residency->total_bytes) {
    append(runs, range, Warmth::warm);
    return;
  }
  // Halve at a grain inside the range; without one the range is a grain.
  std::uint64_t cut = align_down(range.offset + range.size / 2, grain_bytes);
  if (cut <= range.offset) {
    cut += grain_bytes;
  }
  if (cut <= range.offset || cut >= range.end()) {
    append(runs, range, Warmth::cold);
    return;
  }
  classify(file, {range.offset, cut - range.offset}, runs);
  classify(file, {cut, range.end() - cut}, runs);
}

}  // namespace

double cached_fraction(File& file, Range extent) {
  if (file.facts().in_memory) {
    return 1;
  }
  if (extent.empty()) {
    return 0;
  }
  std::uint64_t resident = 0;
  std::uint64_t total = 0;
  const bool whole = extent.size <= look_whole_bytes;
  const std::uint64_t looks =
      whole ? 1 : std::clamp(extent.size / bytes_for_each_sample, samples_min, samples_max);
  const std::uint64_t stride = extent.size / looks;
  for (std::uint64_t index = 0; index < looks; ++index) {
    // Scattered within its share (by the golden ratio), so that no regular layout hides from it.
    const std::uint64_t jitter = whole ? 0 : (index * 0x9e3779b97f4a7c15U >> 11U) % stride;
    const std::uint64_t offset =
        align_down(extent.offset + index * stride + jitter, WorkMap::cut_bytes);
    const auto residency = file.residency({offset, whole ? extent.size : sample_bytes});
    if (!residency) {
      return 0;
    }
    resident += residency->resident_bytes;
    total += residency->total_bytes;
  }
  return total == 0 ? 0 : static_cast<double>(resident) / static_cast<double>(total);
}

WorkMap::Classifier make_classifier(File& file) {
  return [&file](Range block) {
    std::vector<WarmRange> runs;
    try {
      classify(file, block, runs);
    } catch (...) {
      runs.assign(1, {block, Warmth::cold});  // the read will say what is wrong
    }
    return runs;
  };
}

TransferFacts facts_of(Device& device, File& file, Range extent, Direction direction) {
  const FileFacts& known = file.facts();
  TransferFacts facts;
  facts.direction = direction;
  facts.size_bytes = extent.size;
  facts.in_memory = known.in_memory;
  facts.direct_io = known.direct;
  facts.cached_fraction = direction == Direction::send ? cached_fraction(file, extent) : 0;
  facts.host_addressable = device.info().can.host_addressable;
  facts.why_not_map = why_not_map(device, known, direction);
  facts.can_map = facts.why_not_map.empty();
  facts.maps_aside = device.registers_aside_now();
  facts.can_mix = facts.can_map && facts.maps_aside && device.info().can.registers_aside &&
                  extent.size >= mix_bytes_min;
  facts.can_write_mapped = direction == Direction::recv && known.in_memory &&
                           (fcntl(file.fd(), F_GETFL) & O_ACCMODE) == O_RDWR &&
                           can_write_into_mappings();
  facts.can_direct = facts.host_addressable;
  if (!facts.can_direct) {
    const GdsPresence& gds = gds_presence();
    facts.can_direct = gds.real && known.direct;
    facts.why_not_direct = gds.real ? known.why_not_direct : gds.why_not;
  }
  return facts;
}

std::string drive_key(const FileFacts& facts) {
  return facts.drive.empty() ? facts.filesystem : facts.drive;
}

}  // namespace hippogriff
