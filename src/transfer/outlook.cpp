// Residency by sampling and by halving.
#include "transfer/outlook.hpp"

#include "storage/mapped_write.hpp"
#include "transfer/cufile.hpp"

#include <fcntl.h>

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint64_t look_whole_bytes = std::uint64_t{4} << 20;
constexpr std::uint64_t samples_min = 16;
constexpr std::uint64_t samples_max = 64;
// A look takes two microseconds; reading so much takes a thousand.
constexpr std::uint64_t bytes_for_each_sample = std::uint64_t{64} << 20;
// What is mixed within so much is asked grain by grain: halving it would count its pages thrice.
constexpr std::uint64_t asked_in_grains_bytes = std::uint64_t{512} << 10;

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

// Where `range` is to be cut: at a multiple of `step` in its middle, or at its end.
std::uint64_t middle_of(Range range, std::uint64_t step) {
  const std::uint64_t cut = align_down(range.offset + range.size / 2, step);
  return std::min(cut > range.offset ? cut : cut + step, range.end());
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
  const std::uint64_t cut = middle_of(range, warmth_grain_bytes);
  if (cut == range.end()) {
    append(runs, range, Warmth::cold);
  } else if (range.size > asked_in_grains_bytes) {
    classify(file, {range.offset, cut - range.offset}, runs);
    classify(file, {cut, range.end() - cut}, runs);
  } else {
    for (std::uint64_t at = range.offset; at < range.end();) {
      const std::uint64_t end =
          std::min(align_down(at, warmth_grain_bytes) + warmth_grain_bytes, range.end());
      classify(file, {at, end - at}, runs);
      at = end;
    }
  }
}

// The drive reads on over short gaps in less time than it takes to begin again.
std::vector<WarmRange> without_short_gaps(const std::vector<WarmRange>& runs) {
  std::vector<WarmRange> merged;
  for (std::size_t index = 0; index < runs.size(); ++index) {
    const WarmRange& run = runs[index];
    const bool between = index > 0 && index + 1 < runs.size();
    const bool bridged = between && run.range.size <= warmth_gap_bytes;
    append(merged, run.range, bridged ? Warmth::cold : run.warmth);
  }
  return merged;
}

std::vector<WarmRange> classified(File& file, Range range) {
  std::vector<WarmRange> runs;
  classify(file, range, runs);
  return without_short_gaps(runs);
}

std::uint64_t warm_bytes(const std::vector<WarmRange>& runs) {
  std::uint64_t bytes = 0;
  for (const WarmRange& run : runs) {
    bytes += run.warmth == Warmth::warm ? run.range.size : 0;
  }
  return bytes;
}

// The same for the same index, and without a pattern (splitmix64): no regular layout hides from it.
std::uint64_t scattered(std::uint64_t index) {
  std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebU;
  return mixed ^ (mixed >> 31U);
}

// The grain around an offset, as far as it lies in the extent.
Range grain_at(std::uint64_t offset, Range extent) {
  const std::uint64_t grain = align_down(offset, warmth_grain_bytes);
  const std::uint64_t begin = std::max(grain, extent.offset);
  return {begin, std::min(grain + warmth_grain_bytes, extent.end()) - begin};
}

// How much of an extent, 0 to 1, by looks at grains and at so much around them as says whether the
// drive would read on over them.
double sampled_fraction(File& file, Range extent, std::uint64_t looks, std::uint64_t around_bytes) {
  const std::uint64_t stride = extent.size / looks;
  std::uint64_t warm = 0;
  std::uint64_t total = 0;
  for (std::uint64_t index = 0; index < looks; ++index) {
    const std::uint64_t within = scattered(index) % stride;
    const Range grain = grain_at(extent.offset + index * stride + within, extent);
    const std::uint64_t begin =
        std::max(extent.offset, grain.offset - std::min(grain.offset, around_bytes));
    const Range seen{begin, std::min(grain.end() + around_bytes, extent.end()) - begin};
    for (const WarmRange& run : classified(file, seen)) {
      const bool has_it = run.range.offset <= grain.offset && grain.end() <= run.range.end();
      warm += has_it && run.warmth == Warmth::warm ? grain.size : 0;
    }
    total += grain.size;
  }
  return static_cast<double>(warm) / static_cast<double>(total);
}

}  // namespace

double cached_fraction(File& file, Range extent) {
  if (file.facts().in_memory) {
    return 1;
  }
  if (extent.empty()) {
    return 0;
  }
  if (extent.size <= look_whole_bytes) {
    return static_cast<double>(warm_bytes(classified(file, extent))) /
           static_cast<double>(extent.size);
  }
  const std::uint64_t looks =
      std::clamp(extent.size / bytes_for_each_sample, samples_min, samples_max);
  const double seen = sampled_fraction(file, extent, looks, 0);
  // Few looks tell one kind from the other, but not how much there is of each.
  return seen > 0 && seen < 1 ? sampled_fraction(file, extent, samples_max, warmth_gap_bytes)
                              : seen;
}

WorkMap::Classifier make_classifier(File& file) {
  return [&file](Range block) {
    try {
      return classified(file, block);
    } catch (...) {
      return std::vector<WarmRange>{{block, Warmth::cold}};  // the read will say what is wrong
    }
  };
}

void give_back_unread(WorkMap& work, File& file, Range rest) {
  const Range missed = grain_at(rest.offset, rest);
  std::vector<WarmRange> runs{{missed, Warmth::cold}};
  try {
    classify(file, {missed.end(), rest.end() - missed.end()}, runs);
    runs = without_short_gaps(runs);
  } catch (...) {
    runs.assign(1, {rest, Warmth::cold});
  }
  for (; !runs.empty(); runs.pop_back()) {  // the first is taken first
    work.give_back(runs.back().range, runs.back().warmth);
  }
}

namespace {

// With what is in memory of ours: looks might all meet that.
double warm_fraction(File& file, Range extent, std::uint64_t read_ahead_bytes) {
  if (read_ahead_bytes == 0) {
    return cached_fraction(file, extent);
  }
  const Range rest{extent.offset + read_ahead_bytes, extent.size - read_ahead_bytes};
  const double warm = static_cast<double>(read_ahead_bytes) +
                      cached_fraction(file, rest) * static_cast<double>(rest.size);
  return warm / static_cast<double>(extent.size);
}

}  // namespace

bool is_cached(File& file, Range range) {
  const auto residency = file.residency(range);
  return residency && residency->resident_bytes >= residency->total_bytes;
}

TransferFacts facts_of(
    Device& device, File& file, Range extent, Direction direction, std::uint64_t read_ahead_bytes) {
  const FileFacts& known = file.facts();
  TransferFacts facts;
  facts.direction = direction;
  facts.size_bytes = extent.size;
  facts.in_memory = known.in_memory;
  facts.direct_io = known.direct;
  facts.cached_fraction =
      direction == Direction::send ? warm_fraction(file, extent, read_ahead_bytes) : 0;
  facts.host_addressable = device.info().can.host_addressable;
  facts.why_not_map = read_ahead_bytes > 0 ? "some of it is in host memory already"
                                           : why_not_map(device, known, direction);
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

std::string link_key(const DeviceInfo& info) {
  return info.link.empty() ? info.uuid : info.link;
}

}  // namespace hippogriff
