// What an open array stands on, why, and whether another way would be better for it.
#pragma once

#include "array/storage_array.hpp"

#include <string>

namespace hippogriff::ondemand {

// Where an array's lines come from.
enum class LineSource : std::uint8_t {
  memory,         // host memory, copied
  shared_memory,  // host memory that the device's threads read themselves
  mapping,        // the page cache, of which the device's threads read windows themselves
  page_cache,     // files, through the page cache
  drive,          // files, past it
};

struct BetterWay {
  const char* way = "array";  // "load" all of it, "map" it, "array": as it is
  std::string why;
};

struct ArrayFacts {
  LineSource source = LineSource::page_cache;
  bool one_file = true;
  bool on_host = true;
  bool fits_cache = false;  // all of it
  bool loaded = false;      // all of it, when it was opened
  std::uint64_t size_bytes = 0;
  std::uint64_t resident_bytes = 0;     // in the page cache
  std::uint64_t device_free_bytes = 0;  // memory of the device, without this cache
};

// The router's question for arrays. What fits the cache is better loaded; what the host's threads
// find whole in the page cache better mapped; for all else the array, and the reason says when
// loading is better.
[[nodiscard]] BetterWay better_way(const ArrayFacts& facts);

// JSON of one array. `queue_kind` as Storage tells it.
[[nodiscard]] std::string explain_array(StorageArray& array, const std::string& queue_kind);

}  // namespace hippogriff::ondemand
