// What kernels on a GPU count of their accesses, where the host sees it.
#pragma once

#include <hippogriff/array/counting.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>

namespace hippogriff::ondemand {

inline constexpr std::size_t shown_accesses_bytes = sizeof(std::uint64_t) * access_counts;

// Makes as many words as there are counts in `memory`, which both sides reach, and the first values
// of counts that name them.
inline std::span<std::uint64_t> show_accesses(std::byte* memory, std::byte* counts) {
  const std::span<std::uint64_t> shown(new (memory) std::uint64_t[access_counts]{}, access_counts);
  for (std::uint64_t& each : shown) {
    const AccessCount first{0, &each};
    std::memcpy(counts, &first, sizeof first);
    counts += sizeof first;
  }
  return shown;
}

inline std::uint64_t sum_of(std::span<std::uint64_t> shown) {
  std::uint64_t sum = 0;
  for (std::uint64_t& each : shown) {
    sum += system_ref<std::uint64_t>(each).load(relaxed);
  }
  return sum;
}

}  // namespace hippogriff::ondemand
