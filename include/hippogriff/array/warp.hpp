// Lanes of a warp that work together on a line, and single accesses that find each other.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_WARP_HPP_
#define HIPPOGRIFF_ARRAY_WARP_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

// Lanes that all come here. On the host, where nobody calls it, one.
struct Lanes {
  uint32_t mask = 1;

  // All 32 lanes of the warp.
  HIPPO_ANYWHERE static Lanes warp() { return {~uint32_t{0}}; }

  [[nodiscard]] HIPPO_ANYWHERE bool leads() const { return rank() == 0; }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t rank() const {
#ifdef __CUDA_ARCH__
    uint32_t below_me = 0;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below_me));
    return static_cast<uint32_t>(__popc(mask & below_me));
#else
    return 0;
#endif
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t size() const {
#ifdef __CUDA_ARCH__
    return static_cast<uint32_t>(__popc(mask));
#else
    return 1;
#endif
  }

  HIPPO_ANYWHERE void meet() const {
#ifdef __CUDA_ARCH__
    __syncwarp(mask);
#endif
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t told(uint32_t value) const {
#ifdef __CUDA_ARCH__
    value = __shfl_sync(mask, value, __ffs(static_cast<int>(mask)) - 1);
    __syncwarp(mask);  // what the leader has seen in memory: a shuffle orders nothing
    return value;
#else
    return value;
#endif
  }

  [[nodiscard]] HIPPO_ANYWHERE uint64_t told(uint64_t value) const {
#ifdef __CUDA_ARCH__
    value = __shfl_sync(
        mask, static_cast<unsigned long long>(value), __ffs(static_cast<int>(mask)) - 1);
    __syncwarp(mask);
    return value;
#else
    return value;
#endif
  }
};

#ifdef __CUDACC__

// One element, from or to one place of a line.
template <bool Writes, typename T>
__device__ void move_element(unsigned char* place, T& value) {
  if constexpr (block_bytes % sizeof(T) == 0) {  // then an element is aligned wherever it stands
    auto* element = reinterpret_cast<T*>(place);
    if constexpr (Writes) {
      *element = value;
    } else {
      value = *element;
    }
  } else {
    auto* bytes = reinterpret_cast<unsigned char*>(&value);
    for (uint32_t i = 0; i < sizeof(T); ++i) {
      if constexpr (Writes) {
        place[i] = bytes[i];
      } else {
        bytes[i] = place[i];
      }
    }
  }
}

// What lies in one line, for each lane its own. Lanes that happen to be here together find those
// with the same line (__match_any_sync); which lanes these are is a matter of speed alone, so it is
// right whatever __activemask says. First those whose line is there have theirs, without waiting;
// then, when no lane holds anything, the missing lines are fetched one after the other by all.
template <bool Writes, typename T>
__device__ NvmeStatus coalesced_access(const Cache& cache, uint64_t offset, T& value) {
  const uint64_t line = offset >> cache.line_shift;
  const uint32_t begin = static_cast<uint32_t>(offset) & (cache.line_bytes() - 1);
  const Lanes all{__activemask()};
  const Lanes same{__match_any_sync(all.mask, static_cast<unsigned long long>(line))};
  uint32_t place = 0;
  uint32_t there = same.leads() && cache.try_hold(line, place) ? 1 : 0;
  there = same.told(there);
  if (there != 0) {
    place = same.told(place);
    move_element<Writes>(cache.bytes_of(place) + begin, value);
    same.meet();
    if (same.leads()) {
      cache.drop({place, false, NvmeStatus::success}, Writes);
    }
  }
  NvmeStatus status = NvmeStatus::success;
  uint32_t missing = __ballot_sync(all.mask, there == 0);
  while (missing != 0) {
    const int first = __ffs(static_cast<int>(missing)) - 1;
    const uint64_t wanted =
        static_cast<uint64_t>(__shfl_sync(all.mask, static_cast<unsigned long long>(line), first));
    const bool mine = there == 0 && line == wanted;
    const Held held = cache.hold(all, wanted, Intent::use);
    if (mine) {
      status = held.status;
      if (status == NvmeStatus::success) {
        move_element<Writes>(cache.bytes_of(held.place) + begin, value);
      }
    }
    all.meet();
    if (all.leads() && held.status == NvmeStatus::success) {
      cache.drop(held, Writes);
    }
    missing &= ~__ballot_sync(all.mask, mine);
  }
  return status;
}

// An element that straddles lines: byte by byte, rare.
template <bool Writes, typename T>
__device__ NvmeStatus coalesced_bytes(const Cache& cache, uint64_t offset, T& value) {
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  for (uint32_t i = 0; i < sizeof(T); ++i) {
    const NvmeStatus status = coalesced_access<Writes>(cache, offset + i, bytes[i]);
    if (status != NvmeStatus::success) {
      return status;
    }
  }
  return NvmeStatus::success;
}

template <bool Writes, typename T>
__device__ NvmeStatus coalesced(const Cache& cache, uint64_t offset, T& value) {
  if constexpr (block_bytes % sizeof(T) != 0) {
    if ((offset >> cache.line_shift) != ((offset + sizeof(T) - 1) >> cache.line_shift)) {
      return coalesced_bytes<Writes>(cache, offset, value);
    }
  }
  return coalesced_access<Writes>(cache, offset, value);
}

template <typename T>
__device__ NvmeStatus coalesced_read(const Cache& cache, uint64_t offset, T& value) {
  return coalesced<false>(cache, offset, value);
}

template <typename T>
__device__ NvmeStatus coalesced_write(const Cache& cache, uint64_t offset, const T& value) {
  T copy = value;
  return coalesced<true>(cache, offset, copy);
}

#endif  // __CUDACC__

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_WARP_HPP_
