// What kernels on a GPU count of their accesses, where the host sees it, and what it has seen.
#pragma once

#include <hippogriff/array/counting.hpp>

#include <array>
#include <atomic>
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

// The most that the host has seen of each count. A thread that counts at the same time as others
// may store its number late, over a larger one: what was seen stays. Thread-safe.
class SeenAccesses {
 public:
  void see(std::size_t which, std::uint64_t count) {
    std::atomic<std::uint64_t>& most = most_.at(which);
    std::uint64_t before = most.load(relaxed);
    while (before < count && !most.compare_exchange_weak(before, count, relaxed)) {
    }
  }

  // Words that show_accesses made.
  void see_shown(std::span<std::uint64_t> shown) {
    for (std::size_t i = 0; i < shown.size(); ++i) {
      see(i, system_ref<std::uint64_t>(shown[i]).load(relaxed));
    }
  }

  // Only grows.
  [[nodiscard]] std::uint64_t sum() const {
    std::uint64_t sum = 0;
    for (const std::atomic<std::uint64_t>& each : most_) {
      sum += each.load(relaxed);
    }
    return sum;
  }

 private:
  std::array<std::atomic<std::uint64_t>, access_counts> most_{};
};

}  // namespace hippogriff::ondemand
