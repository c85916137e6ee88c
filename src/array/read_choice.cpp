// The costs of both ways, and what an array's are.
#include "array/read_choice.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace hippogriff::ondemand {

namespace {

// `array_bench 4` on an H100, bench/results/h100-24-array-bench.jsonl: reads a second of host
// memory in blocks of a line, the share of it that misses of a warp a line reach, and hits of whole
// lines.
struct MeasuredLine {
  double bytes = 0;
  double zero_copy_reads = 0;  // a second
  double misses_of_it = 0;
  double hit_bytes = 0;  // a second
};

constexpr std::array measured_lines{
    MeasuredLine{512, 48.0e6, 0.80, 0.353e12},
    MeasuredLine{4096, 12.43e6, 0.97, 2.13e12},
    MeasuredLine{8192, 6.18e6, 0.98, 2.92e12},
    MeasuredLine{65'536, 0.770e6, 1.0, 3.89e12},
};

// Between two measured ones by the logarithm of the length; beyond them as the nearest.
MeasuredLine line_of(double bytes) {
  const auto* above = std::ranges::find_if(
      measured_lines, [bytes](const MeasuredLine& each) { return each.bytes >= bytes; });
  if (above == measured_lines.begin() || above == measured_lines.end()) {
    MeasuredLine nearest =
        above == measured_lines.end() ? measured_lines.back() : measured_lines.front();
    nearest.zero_copy_reads *= nearest.bytes / bytes;  // as many bytes
    nearest.bytes = bytes;
    return nearest;
  }
  const MeasuredLine& low = above[-1];
  const double share = std::log2(bytes / low.bytes) / std::log2(above->bytes / low.bytes);
  const auto between = [share](double from, double to) { return from + share * (to - from); };
  return {bytes,
          between(low.zero_copy_reads * low.bytes, above->zero_copy_reads * above->bytes) / bytes,
          between(low.misses_of_it, above->misses_of_it),
          between(low.hit_bytes, above->hit_bytes)};
}

std::string obstacle(const ReadFacts& facts) {
  if (!facts.on_gpu) {
    return "threads of the host copy lines, whichever way they come";
  }
  if (facts.loaded) {
    return "all of it was loaded into the cache";
  }
  if (facts.kind != LoadKind::automatic) {
    return "the cache was asked for by load";
  }
  if (facts.changes) {
    return "what is written to the array is in the cache first";
  }
  if (facts.is_direct) {
    return "it is read past the page cache";
  }
  return facts.can_be_read ? "" : "it is not whole in host memory that the device can read";
}

ReadFacts facts_of(const StorageArray& array, LoadKind kind, std::uint32_t copying_threads) {
  const Backing& backing = array.backing();
  ReadFacts facts{.kind = kind,
                  .on_gpu = !array.device().info().can.host_addressable,
                  .loaded = array.loaded_bytes() != 0,
                  .changes = backing.writable || backing.overlay != nullptr,
                  .is_direct = backing.is_direct,
                  .size_bytes = array.size_bytes(),
                  .cache_bytes = array.cache_bytes(),
                  .line_bytes = array.cache().line_bytes(),
                  .copying_threads = copying_threads};
  if (backing.in_memory()) {
    facts.can_be_read = array.answers_with_addresses();
  } else if (backing.windows == nullptr) {
    facts.can_be_read = false;
  } else if (obstacle(facts).empty()) {
    facts.unregistered_bytes = facts.size_bytes;
    const auto there = backing.files[0].file->residency({backing.file_offset, backing.size_bytes});
    facts.can_be_read = there && there->resident_bytes >= backing.size_bytes;
  }
  return facts;
}

}  // namespace

ReadSeconds read_seconds(const ReadFacts& facts) {
  const MeasuredLine line = line_of(facts.line_bytes);
  const auto bytes = static_cast<double>(facts.size_bytes);
  const double lines = std::ceil(bytes / line.bytes);
  const double cached = std::min(1.0, static_cast<double>(facts.cache_bytes) / bytes);
  const double hits = reuse_assumed + (1 - reuse_assumed) * cached;
  const double read = 1 / line.zero_copy_reads;
  ReadSeconds seconds;
  seconds.cache =
      lines * ((1 - hits) * read / line.misses_of_it + hits * line.bytes / line.hit_bytes);
  if (facts.unregistered_bytes != 0) {
    // Windows are registered beside those who read, once lines enough of them were copied.
    const std::uint64_t copies = worth_copies(facts.unregistered_bytes, facts.line_bytes);
    seconds.cache += static_cast<double>(copies_ns(copies, copies * facts.line_bytes)) * 1e-9 *
                     (1 - hits) / std::max(1U, facts.copying_threads);
  }
  seconds.registering = static_cast<double>(facts.unregistered_bytes) / registered_bytes_per_second;
  seconds.zero_copy = lines * read + seconds.registering;
  return seconds;
}

double hits_enough(std::uint32_t line_bytes) {
  const MeasuredLine line = line_of(line_bytes);
  const double hit = line.bytes / line.hit_bytes * line.zero_copy_reads;  // to a read
  return (1 / line.misses_of_it - 1) / (1 / line.misses_of_it - hit);
}

ReadChoice choose_reads(const ReadFacts& facts) {
  if (std::string why = obstacle(facts); !why.empty()) {
    return {false, std::move(why), std::nullopt};
  }
  const ReadSeconds seconds = read_seconds(facts);
  const std::string both = seconds_text(seconds.cache) + " through the cache, " +
                           seconds_text(seconds.zero_copy) + " past it";
  if (seconds.registering > unnoticed_load_seconds) {
    return {false,
            "registering its pages would take about " + seconds_text(seconds.registering),
            seconds};
  }
  if (seconds.zero_copy < seconds.cache) {
    return {true, "few of its lines will be found in the cache: " + both, seconds};
  }
  return {false, "the cache is as fast or faster: " + both, seconds};
}

void choose_reads_at_opening(StorageArray& array, LoadKind kind, std::uint32_t copying_threads) {
  ReadChoice choice = choose_reads(facts_of(array, kind, copying_threads));
  const std::byte* const there = choice.zero_copy ? array.put_in_place() : nullptr;
  if (choice.zero_copy && there == nullptr) {
    choice.why = "its pages could not be registered";
  }
  array.choose_reads({.past = there,
                      .hits_enough = hits_enough(array.cache().line_bytes()),
                      .why = std::move(choice.why),
                      .cache_seconds = choice.seconds ? choice.seconds->cache : 0,
                      .past_seconds = choice.seconds ? choice.seconds->zero_copy : 0});
}

}  // namespace hippogriff::ondemand
