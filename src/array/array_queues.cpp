// The sizes of queues and of staging memory, as measured.
#include "array/array_queues.hpp"

#include <algorithm>
#include <bit>

namespace hippogriff::ondemand {

namespace {

bool writes_files(const StorageArrayOptions& options) {
  return options.backing.writable && !options.backing.in_memory();
}

// Of ordinary queues, about: pinning it is most of what opening an array takes, and what is in the
// processor's caches is copied faster. What is under way is of the cache, so small caches have
// less; and of the device's link, so files that are read beside others have less. A drive has
// hundreds of requests under way at most: random reads of 4 KiB past the page cache were 5 and 1 %
// faster in 1 and 4 MiB than in 16 (H200), but who reads in order wants megabytes under way. A
// command to write takes longer, and many reads of memory, which are answered without staging, are
// under way.
std::uint64_t staging_bytes(const StorageArrayOptions& options) {
  constexpr std::uint64_t least = std::uint64_t{1} << 20;
  constexpr std::uint64_t most = std::uint64_t{32} << 20;
  constexpr std::uint64_t enough_to_read = std::uint64_t{16} << 20;
  constexpr std::uint64_t enough_beside_others = std::uint64_t{8} << 20;
  constexpr std::uint64_t enough_of_a_file = std::uint64_t{4} << 20;
  constexpr std::uint64_t lines_of_a_file = 1024;
  if (options.backing.writable || options.backing.in_memory()) {
    return std::clamp(options.cache_bytes / 4, least, most);
  }
  const bool beside_others = options.controller->stages_for(options.device.get());
  const std::uint64_t enough = beside_others ? enough_beside_others : enough_to_read;
  const std::uint64_t of_cache = options.cache_bytes / 4;
  const std::uint64_t of_files =
      options.backing.files.size() *
      std::max<std::uint64_t>(enough_of_a_file, lines_of_a_file * options.line_bytes);
  return std::clamp(
      options.backing.is_direct ? std::min(of_cache, of_files) : of_cache, least, enough);
}

// As many as keep a GPU's warps from each other's way, but each long enough for a warp's batch
// where there is memory: it may have half of the slots, and lines that are written, or read past
// the page cache, together are fewer requests of the drive. Over host memory 16, four times as
// deep, are faster than 64, or 8 (H100: view[i] at 4 KiB 6 %). Over files 16 made queries faster
// and searches of graphs slower.
std::uint32_t staged_queues(const StorageArrayOptions& options) {
  const std::uint64_t read_each = options.backing.is_direct ? 64 : 32;
  const std::uint64_t lines_each = writes_files(options) ? 128 : read_each;
  const std::uint64_t most = options.backing.in_memory() ? 16 : 64;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(staging_bytes(options) / options.line_bytes / lines_each, 4, most));
}

std::uint32_t depth_for(const StorageArrayOptions& options, bool staged) {
  if (!staged) {
    return 256;
  }
  const std::uint64_t fit = staging_bytes(options) / options.queue_count / options.line_bytes;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(std::bit_floor(fit), queue_depth_min, 1024));
}

}  // namespace

bool is_staged(const StorageArrayOptions& options) {
  return options.staged || !options.device->info().can.host_addressable;
}

std::uint32_t pending_queues(const StorageArrayOptions& options) {
  const bool writes = writes_files(options);
  const std::uint32_t part = writes ? 4 : 8;
  const std::uint32_t enough = options.backing.is_direct && !writes ? 8 : 4;
  return std::min(options.queue_count, std::max(enough, options.queue_count / part));
}

void choose_queues(StorageArrayOptions& options) {
  const bool staged = is_staged(options);
  if (options.queue_count == 0) {
    options.queue_count = staged ? staged_queues(options) : 4;
  }
  if (options.queue_depth == 0) {
    options.queue_depth = depth_for(options, staged);
  }
}

}  // namespace hippogriff::ondemand
