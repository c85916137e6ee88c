// Reading an element of a line that is there, without a reference to its place.
//
// A hit by reference is two atomic operations on the place's word, and the fences that belong to
// them. Instead the place's key (places.hpp) is read before and after the element: where it is the
// line's both times, the bytes were, too. For that, three things stand in this order. (1) Whoever
// claims the place for another line takes its key away, and lets go of the set's lock, which on a
// GPU is a fence (MEMBAR) of the whole device, before a byte changes. (2) The key is the line's
// again only once a thread has held the line, so its bytes are there. (3) The second look at the
// key begins when the element has come. So if the element was of another line, or half of one, the
// second look finds the key without the line, or with another number. A number comes again after
// 2^24 claims in the set, each of them a command to the storage or a line overwritten, all while
// one element is on its way.
//
// Threads that use an element at the same time, one of them writing, agree among themselves.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PEEK_HPP_
#define HIPPOGRIFF_ARRAY_PEEK_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

#ifdef __CUDA_ARCH__
HIPPO_ANYWHERE inline uint64_t global_address(const void* there) {
  return __cvta_generic_to_global(there);
}
#endif

// 1, 2, 4 or 8 bytes at once, from memory that all threads of the device see: never from the L1
// cache.
template <uint32_t Bytes>
HIPPO_ANYWHERE uint64_t load_fresh(const void* there) {
#ifdef __CUDA_ARCH__
  uint64_t wide = 0;
  uint32_t narrow = 0;
  if constexpr (Bytes == 8) {
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(wide) : "l"(global_address(there)));
    return wide;
  } else if constexpr (Bytes == 4) {
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(narrow) : "l"(global_address(there)));
  } else if constexpr (Bytes == 2) {
    asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=r"(narrow) : "l"(global_address(there)));
  } else {
    asm volatile("ld.relaxed.gpu.global.u8 %0, [%1];" : "=r"(narrow) : "l"(global_address(there)));
  }
  return narrow;
#else
  if constexpr (Bytes == 8) {
    return __atomic_load_n(static_cast<const uint64_t*>(there), __ATOMIC_RELAXED);
  } else if constexpr (Bytes == 4) {
    return __atomic_load_n(static_cast<const uint32_t*>(there), __ATOMIC_RELAXED);
  } else if constexpr (Bytes == 2) {
    return __atomic_load_n(static_cast<const uint16_t*>(there), __ATOMIC_RELAXED);
  } else {
    return __atomic_load_n(static_cast<const uint8_t*>(there), __ATOMIC_RELAXED);
  }
#endif
}

// The keys of a set, all asked for before one is looked at.
struct SetKeys {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the loop fills all
  HIPPO_ANYWHERE explicit SetKeys(const uint64_t* first) {
    HIPPO_UNROLL
    for (uint32_t way = 0; way < ways_max; way += 2) {
#ifdef __CUDA_ARCH__
      asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                   : "=l"(key[way]), "=l"(key[way + 1])
                   : "l"(global_address(first + way)));
#else
      key[way] = load_fresh<8>(first + way);
      key[way + 1] = load_fresh<8>(first + way + 1);
#endif
    }
  }

  // The way whose bytes are the line's, and its key; false where there is none.
  HIPPO_ANYWHERE bool find(uint64_t line, uint32_t& way, uint64_t& its) const {
    const uint64_t wanted = PlaceKey::of(line);
    bool found = false;
    HIPPO_UNROLL
    for (uint32_t each = 0; each < ways_max; ++each) {
      const bool is_it = (key[each] & ~PlaceKey::numbers) == wanted;
      way = is_it ? each : way;
      its = is_it ? key[each] : its;
      found = found || is_it;
    }
    return found;
  }

  uint64_t key[ways_max];
};

// A place's key, looked at once `seen` has come. On a GPU the address depends on it, by a zero that
// the compiler does not know, so that the load cannot begin before. PTX's model promises no order
// of dependent loads, the hardware cannot do otherwise; a load that acquires is promised, and
// empties the L1 cache (H200: 398 GB/s through view[i] instead of 443).
HIPPO_ANYWHERE inline uint64_t key_after([[maybe_unused]] uint64_t seen,
                                         [[maybe_unused]] uint32_t zero,
                                         const uint64_t* key) {
#ifdef __CUDA_ARCH__
  return load_fresh<8>(key + (static_cast<uint32_t>(seen) & zero));
#else
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return load_fresh<8>(key);
#endif
}

// The element at `offset`, which lies in one line, if that is there. One thread.
template <typename T>
HIPPO_ANYWHERE bool peek(const Cache& cache, uint64_t offset, T& value) {
  constexpr bool aligned = block_bytes % sizeof(T) == 0;  // wherever it stands
  constexpr uint32_t unit = !aligned ? 1 : sizeof(T) < 8 ? sizeof(T) : 8;
  constexpr uint32_t count = sizeof(T) / unit;
  const PlaceTable& places = cache.places;
  const uint64_t line = offset >> cache.line_shift;
  const uint32_t first = places.first_place_of(line);
  uint32_t way = 0;
  uint64_t key = 0;
  if (!SetKeys(places.keys + first).find(line, way, key)) {
    return false;
  }
  const uint32_t place = first + way;
  const unsigned char* from =
      cache.bytes_of(place) + (static_cast<uint32_t>(offset) & (cache.line_bytes() - 1));
  uint64_t units[count];
  uint64_t seen = 0;
  HIPPO_UNROLL
  for (uint32_t i = 0; i < count; ++i) {
    units[i] = load_fresh<unit>(from + size_t{i} * unit);
    seen |= units[i];
  }
  const uint64_t word = load_fresh<8>(places.words + place);
  if (key_after(seen, cache.zero, places.keys + place) != key) {
    return false;
  }
  places.touch(place, word);
  auto* bytes = reinterpret_cast<unsigned char*>(&value);
  HIPPO_UNROLL
  for (uint32_t i = 0; i < count; ++i) {
    HIPPO_MEMCPY(bytes + size_t{i} * unit, &units[i], unit);  // host and GPU are little-endian
  }
  return true;
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PEEK_HPP_
