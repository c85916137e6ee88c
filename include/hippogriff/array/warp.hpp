// Single accesses of a warp's lanes that find each other.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_WARP_HPP_
#define HIPPOGRIFF_ARRAY_WARP_HPP_

#include <hippogriff/array/fetch.hpp>

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
      cache.places.drop(place, Writes);
    }
  }
  there = there || fetched;
  return all.all(there) ? NvmeStatus::success
                        : access_in_turn<Writes>(cache, all, offset, !there, value);
}

#ifdef __CUDACC__

// Lanes that happen to be here together (__match_any_sync finds those with the same line): which
// these are is a matter of speed alone, so it is right whatever __activemask says.
template <bool Writes, typename T>
__device__ NvmeStatus coalesced_access(const Cache& cache, uint64_t offset, T& value) {
  return access_together<Writes>(cache, Lanes(__activemask()), offset, value);
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
