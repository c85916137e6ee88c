// What a cache counts: lines that come and go; and how often threads asked for lines, which many
// threads count up at every hit.
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

// One for each CPU thread, as long as there are enough, or for each multiprocessor. CPU threads
// that share one may lose a count when they meet, and threads of a GPU count one access in so many:
// the sum is for people. Who is late may set back a CPU's count, or what is shown of a GPU's: the
// host keeps the most that it has seen. Kernels count where HIPPOGRIFF_COUNT_ACCESSES is defined
// before all of the program's includes: in others there is nothing of it, since it takes registers.
struct alignas(64) AccessCount {
  uint64_t count = 0;
  uint64_t* shown = nullptr;  // a GPU's: what the host sees of it
};

inline constexpr uint32_t access_counts = 64;
inline constexpr uint32_t access_sample = 64;

// The host sees each sample of the first so many accesses of a multiprocessor, then one in sixteen:
// a store across the link.
inline constexpr uint64_t accesses_shown_at_once = uint64_t{1} << 16U;

// Counts one access that stands for `access_sample`.
HIPPO_ANYWHERE inline void count_sample(AccessCount& mine) {
  const uint64_t now =
      shared_ref<uint64_t>(mine.count).fetch_add(access_sample, relaxed) + access_sample;
  if (mine.shown != nullptr && (now <= accesses_shown_at_once || now / access_sample % 16 == 0)) {
    system_ref<uint64_t>(*mine.shown).store(now, relaxed);
  }
}

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

#ifdef __CUDACC__

// Whether this access stands for others, too. The multiprocessor's clock draws: 16 cycles of every
// 1024.
__device__ inline bool is_drawn() {
  uint32_t cycles = 0;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycles));
  return cycles / 16 % access_sample == 0;
}

__device__ inline void count_drawn(AccessCount* counts) {
  uint32_t multiprocessor = 0;
  asm("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
  count_sample(counts[multiprocessor % access_counts]);
}

#endif  // __CUDACC__

// `counts` has access_counts of them, or is null.
HIPPO_ANYWHERE inline void count_access([[maybe_unused]] AccessCount* counts) {
#if defined(__CUDA_ARCH__) && defined(HIPPOGRIFF_COUNT_ACCESSES)
  if (counts != nullptr && is_drawn()) {
    count_drawn(counts);
  }
#elif !defined(__CUDA_ARCH__)
  if (counts != nullptr) {
    shared_ref<uint64_t> mine(counts[number_of_thread() % access_counts].count);
    mine.store(mine.load(relaxed) + 1, relaxed);
  }
#endif
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_COUNTING_HPP_
