// Whether rows that the library's kernels read for a GPU come through the cache or past it.
#pragma once

#include "array/loading.hpp"
#include "array/storage_array.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace hippogriff::ondemand {

// What nobody knows when an array is opened is assumed: all that is touched is whole lines, as many
// as the array has, at random; and this share of them was touched shortly before, whatever the
// cache's size. Who is wrong about zero-copy where lines are touched again pays for each of them
// what the link takes, ten times and more; who is wrong about the cache a fifth at most.
inline constexpr double reuse_assumed = 0.1;

// Registering pages of a file; memory's are registered whichever way is taken.
inline constexpr double registered_bytes_per_second = 16e9;

struct ReadFacts {
  LoadKind kind = LoadKind::automatic;
  bool on_gpu = true;
  bool loaded = false;
  bool changes = false;     // through this array: zero-copy does not see what the cache has
  bool is_direct = false;   // past the page cache
  bool can_be_read = true;  // in place, as far as is known without registering it
  std::uint64_t size_bytes = 0;
  std::uint64_t cache_bytes = 0;
  std::uint32_t line_bytes = 4096;
  std::uint64_t unregistered_bytes = 0;  // of them: in the page cache, copied until registered
  std::uint32_t copying_threads = 1;
};

// Seconds for as many bytes as the array has, as assumed above.
struct ReadSeconds {
  double cache = 0;
  double zero_copy = 0;    // with registering
  double registering = 0;  // which who opens the array waits for
};

struct ReadChoice {
  bool zero_copy = false;
  std::string why;                     // a clause for people
  std::optional<ReadSeconds> seconds;  // nothing where zero-copy cannot be
};

// By what an H100 was measured to read from host memory, in lines of 512 B to 64 KiB.
[[nodiscard]] ReadSeconds read_seconds(const ReadFacts& facts);

// Of 1: the share of lines found in the cache from which on it is quicker than zero-copy.
[[nodiscard]] double hits_enough(std::uint32_t line_bytes);

// Zero-copy where it can be, is predicted to be faster, and nobody would notice the time to
// register what it needs.
[[nodiscard]] ReadChoice choose_reads(const ReadFacts& facts);

// Chooses for an array that was opened, and may be loaded, and that nobody uses yet. Where
// zero-copy is chosen and cannot be set up, reads go through the cache, and the array says why.
// Throws nothing but std::bad_alloc.
void choose_reads_at_opening(StorageArray& array, LoadKind kind, std::uint32_t copying_threads);

}  // namespace hippogriff::ondemand
