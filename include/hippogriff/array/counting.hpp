// What a cache counts: lines that come and go; and how often CPU threads asked for lines, which
// many threads count up at every hit.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_COUNTING_HPP_
#define HIPPOGRIFF_ARRAY_COUNTING_HPP_

#include <hippogriff/array/portable.hpp>

namespace hippogriff::ondemand {

struct CacheCounters {
  alignas(128) uint64_t misses = 0;
  uint64_t overwritten = 0;   // lines that came without a read
  uint64_t written_back = 0;  // by those who needed the place, or by flush
};

// One for each thread, as long as there are enough. Threads that share one may lose a count when
// they meet: the sum is for people.
struct alignas(64) AccessCount {
  uint64_t count = 0;
};

inline constexpr uint32_t access_counts = 64;

#ifndef __CUDA_ARCH__
// From 1; threads that come one after the other have others.
inline uint32_t number_of_thread() {
  static uint32_t last = 0;
  static thread_local uint32_t mine = 0;
  if (mine == 0) {
    mine = shared_ref<uint32_t>(last).fetch_add(1, relaxed) + 1;
  }
  return mine;
}
#endif

// `counts` has access_counts of them, or is null. Threads of a GPU count nothing.
HIPPO_ANYWHERE inline void count_access([[maybe_unused]] AccessCount* counts) {
#ifndef __CUDA_ARCH__
  if (counts != nullptr) {
    shared_ref<uint64_t> mine(counts[number_of_thread() % access_counts].count);
    mine.store(mine.load(relaxed) + 1, relaxed);
  }
#endif
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_COUNTING_HPP_
