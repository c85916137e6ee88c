// Whether an array's cache is filled when it is opened, and how.
#pragma once

#include "array/storage_array.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hippogriff {
class Runtime;
}  // namespace hippogriff

namespace hippogriff::ondemand {

enum class LoadKind : std::uint8_t {
  automatic,  // all, where it fits and nobody would notice the time
  all,
  none,  // lines, as they are touched
};

// A prediction of more than this is noticed by who opens an array and wants little of it.
inline constexpr double unnoticed_load_seconds = 0.1;

// Like "0.12 s", for people.
[[nodiscard]] std::string seconds_text(double seconds);

struct LoadFacts {
  LoadKind kind = LoadKind::automatic;
  std::uint64_t size_bytes = 0;
  std::uint64_t cache_bytes = 0;
  bool fits = false;                // the cache has a place for each line
  bool is_new = false;              // mode w+: there is nothing to load
  bool in_memory = false;           // of this process, which may fill it later
  std::optional<double> predicted;  // seconds; nothing where nobody can say
};

struct LoadChoice {
  bool loads = false;
  std::string why;  // a clause for people
};

// Throws Error(invalid_argument) unless the name is "auto", "all" or "none".
[[nodiscard]] LoadKind load_kind_of(std::string_view name);

// Throws Error(invalid_argument) where all is asked for and does not fit.
[[nodiscard]] LoadChoice choose_load(const LoadFacts& facts);

// Chooses for an array that was opened on a device of the runtime and that nobody uses yet, loads
// it where that is chosen, and has it say so. A load that was not asked for and fails leaves lines
// to be had as they are touched; one that was throws its Error, and so does any that may write
// later. `interrupted`, which may be empty, is asked up to 50 times a second whether to throw
// Error(cancelled) instead.
void load_at_opening(StorageArray& array,
                     Runtime& runtime,
                     LoadKind kind,
                     const std::function<bool()>& interrupted = nullptr);

}  // namespace hippogriff::ondemand
