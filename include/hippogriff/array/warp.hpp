// Single accesses of a warp's lanes that find each other.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_WARP_HPP_
#define HIPPOGRIFF_ARRAY_WARP_HPP_

#include <hippogriff/array/fetch.hpp>
#include <hippogriff/array/peek.hpp>

namespace hippogriff::ondemand {

// One element, from or to one place of a line.
template <bool Writes, typename T>
HIPPO_ANYWHERE void move_element(unsigned char* place, T& value) {
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

// Lines that must be waited for, one after the other by all, who hold nothing.
template <bool Writes, typename Group, typename T>
HIPPO_ANYWHERE NvmeStatus
access_in_turn(const Cache& cache, const Group& all, uint64_t offset, bool missing, T& value) {
  const uint64_t line = offset >> cache.line_shift;
  const uint32_t begin = static_cast<uint32_t>(offset) & (cache.line_bytes() - 1);
  NvmeStatus status = NvmeStatus::success;
  uint32_t left = all.vote(missing);
  while (left != 0) {
    const uint64_t wanted = all.told_by(lowest(left), line);
    const bool mine = missing && line == wanted;
    const Held held = cache.hold(all, wanted, Intent::use);
    NvmeStatus its = held.status;
    if (its == NvmeStatus::success) {
      if (mine) {
        move_element<Writes>(cache.bytes_of(held.place) + begin, value);
      }
      all.meet();
      if (all.leads() && held.place != cache.places.spare()) {
        cache.places.publish(held.place, wanted);
      }
      its = cache.drop(all, held, Writes);
    }
    status = mine ? its : status;
    left &= ~all.vote(mine);
  }
  return status;
}

// What lies in one line, for each of `all` its own. Those with the same line find each other. First
// those whose line is there have theirs, without waiting; then the lines that can be had at once
// are read together; then, when nobody holds anything, the others one after the other.
template <bool Writes, typename Group, typename T>
HIPPO_ANYWHERE NvmeStatus
access_together(const Cache& cache, const Group& all, uint64_t offset, T& value) {
  const uint64_t line = offset >> cache.line_shift;
  const uint32_t begin = static_cast<uint32_t>(offset) & (cache.line_bytes() - 1);
  const Group same = all.with_same(line);
  uint32_t place = 0;
  bool there = same.told(same.leads() && cache.try_hold(line, place));
  bool fetched = false;
  if (!all.all(there)) {
    fetched = same.told(fetch(cache, all, line, same.leads() && !there, place));
  }
  if (there || fetched) {
    place = same.told(place);
    move_element<Writes>(cache.bytes_of(place) + begin, value);
    same.meet();
    if (same.leads()) {
      cache.places.publish(place, line);
      cache.places.drop(place, Writes);
    }
  }
  there = there || fetched;
  return all.all(there) ? NvmeStatus::success
                        : access_in_turn<Writes>(cache, all, offset, !there, value);
}

#ifdef __CUDACC__

// Lanes that happen to be here together (__match_any_sync finds those with the same line): which
// these are is a matter of speed alone.
template <bool Writes, typename T>
__device__ NvmeStatus coalesced_access(const Cache& cache, uint64_t offset, T& value) {
  return access_together<Writes>(cache, Lanes::here(cache.zero), offset, value);
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

// Whether all of it lies in one line.
template <typename T>
__device__ bool in_one_line(const Cache& cache, uint64_t offset) {
  return block_bytes % sizeof(T) == 0 ||
         (offset >> cache.line_shift) == ((offset + sizeof(T) - 1) >> cache.line_shift);
}

template <bool Writes, typename T>
__device__ NvmeStatus coalesced(const Cache& cache, uint64_t offset, T& value) {
  if (!in_one_line<T>(cache, offset)) {
    return coalesced_bytes<Writes>(cache, offset, value);
  }
  return coalesced_access<Writes>(cache, offset, value);
}

// Of the lanes that had elements of one line, one counts. Which lanes those are is asked where one
// of all is drawn: that costs more than all else of a count.
__device__ inline void count_hits([[maybe_unused]] const Cache& cache,
                                  [[maybe_unused]] const Lanes& all,
                                  [[maybe_unused]] uint64_t offset,
                                  [[maybe_unused]] bool there) {
#ifdef HIPPOGRIFF_COUNT_ACCESSES
  if (all.vote(is_drawn()) == 0) {
    return;
  }
  const Lanes same = all.with_same(there ? offset >> cache.line_shift : no_line);
  if (there && same.leads()) {
    count_drawn(cache.accesses);
  }
#endif
}

template <typename T>
__device__ NvmeStatus coalesced_read(const Cache& cache, uint64_t offset, T& value) {
  const Lanes all = Lanes::here(cache.zero);
  const bool there = in_one_line<T>(cache, offset) && peek(cache, offset, value);
  const uint32_t missing = all.ballot(!there);
  count_hits(cache, all, offset, there);
  if (missing == 0) {
    return NvmeStatus::success;
  }
  NvmeStatus status = NvmeStatus::success;
  if (!there) {
    // Named, so that they stay together however the compiler has parted them.
    if constexpr (block_bytes % sizeof(T) == 0) {
      status = access_together<false>(cache, Lanes(missing), offset, value);
    } else {
      status = coalesced<false>(cache, offset, value);
    }
  }
  all.meet();  // whoever ran ahead would find fewer to go together with, from then on
  return status;
}

template <typename T>
__device__ NvmeStatus coalesced_write(const Cache& cache, uint64_t offset, const T& value) {
  T copy = value;
  return coalesced<true>(cache, offset, copy);
}

#endif  // __CUDACC__

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_WARP_HPP_
