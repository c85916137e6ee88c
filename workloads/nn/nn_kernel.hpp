// The k smallest of a stream of keys: a block keeps its k best sorted in shared memory, gathers
// what is smaller than the last of them, and sorts again.
#pragma once

#include "workloads/papers/block.hpp"

struct alignas(8) NnPlace {
  float latitude;
  float longitude;
};

struct NnAnswer {
  unsigned record;
  float distance;
};

// What is sorted: the square of a distance (as its bits, which sort like it) above the record.
using NnKey = unsigned long long;
constexpr NnKey nn_no_key = ~0ULL;

// Not contracted to one rounding, so that all devices and the oracle find the same bits.
HIPPO_DEVICE inline unsigned nn_square_bits(float north, float east) {
#ifdef __CUDACC__
  return __float_as_uint(__fadd_rn(__fmul_rn(north, north), __fmul_rn(east, east)));
#else
  const float square = north * north + east * east;
  return __builtin_bit_cast(unsigned, square);
#endif
}

HIPPO_DEVICE inline float nn_root_of_bits(unsigned bits) {
#ifdef __CUDACC__
  return sqrtf(__uint_as_float(bits));
#else
  return __builtin_sqrtf(__builtin_bit_cast(float, bits));
#endif
}

// Keys of places, by their distance to one.
struct NnPlaces {
  const NnPlace* places;
  NnPlace from;

  HIPPO_DEVICE NnKey operator()(std::size_t record) const {
    const NnPlace place = places[record];
    const unsigned bits =
        nn_square_bits(place.latitude - from.latitude, place.longitude - from.longitude);
    return static_cast<NnKey>(bits) << 32U | record;
  }
};

// Keys that there are.
struct NnKeys {
  const NnKey* keys;

  HIPPO_DEVICE NnKey operator()(std::size_t index) const { return keys[index]; }
};

// Writes the `best` smallest keys of each block, sorted; nn_no_key where it has fewer.
template <typename Source>
struct NnSmallest {
  static constexpr unsigned threads = 256;
  static constexpr unsigned best_max = 256;
  static constexpr unsigned keys_a_thread = 8;
  static constexpr unsigned keys_a_round = threads * keys_a_thread;

  struct Shared {
    NnKey keys[4096];  // the best, then what may be better, up to a power of two
    NnKey bound;
    unsigned count;
  };

  static_assert(best_max + keys_a_round <= 4096);

  Source source;
  std::size_t count;
  unsigned best;
  std::size_t block_count;
  NnKey* block_keys;  // [block][best]

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    block.each([&](unsigned thread) { begin(thread, shared); });
    const std::size_t rounds = parts_of(count, keys_a_round);
    for (std::size_t round = block.index(); round < rounds; round += block_count) {
      const std::size_t first = round * keys_a_round;
      if (round == block.index()) {
        // Nothing is known yet: a few keys give a bound, so that not all have to be sorted.
        block.each([&](unsigned thread) { gather<0, 1>(first + thread, shared); });
        settle(block, shared);
        block.each([&](unsigned thread) { gather<1, keys_a_thread>(first + thread, shared); });
      } else {
        block.each([&](unsigned thread) { gather<0, keys_a_thread>(first + thread, shared); });
      }
      settle(block, shared);
    }
    block.each([&](unsigned thread) {
      if (thread < best) {
        block_keys[block.index() * best + thread] = shared.keys[thread];
      }
    });
  }

 private:
  HIPPO_DEVICE void begin(unsigned thread, Shared& shared) const {
    if (thread < best) {
      shared.keys[thread] = nn_no_key;
    }
    if (thread == 0) {
      shared.bound = nn_no_key;
      shared.count = best;
    }
  }

  HIPPO_DEVICE void keep_best(unsigned thread, Shared& shared) const {
    if (thread == 0) {
      shared.bound = shared.keys[best - 1];
      shared.count = best;
    }
  }

  // Sorts when something was gathered.
  template <typename Block>
  HIPPO_DEVICE void settle(const Block& block, Shared& shared) const {
    const unsigned filled = block.read(shared.count);
    if (filled > best) {
      sort(block, shared, filled);
      block.each([&](unsigned thread) { keep_best(thread, shared); });
    }
  }

  // Of a thread's keys of the round some. Reads all, then looks at them: so many reads are in
  // flight.
  template <unsigned FirstKey, unsigned LastKey>
  HIPPO_DEVICE void gather(std::size_t first, Shared& shared) const {
    Few<NnKey, LastKey - FirstKey> keys = {};
    for (unsigned i = 0; i < LastKey - FirstKey; ++i) {
      const std::size_t index = first + std::size_t{FirstKey + i} * threads;
      keys[i] = index < count ? source(index) : nn_no_key;
    }
    const NnKey bound = shared.bound;
    for (unsigned i = 0; i < LastKey - FirstKey; ++i) {
      if (keys[i] < bound) {
        shared.keys[fetch_add(shared.count, 1U)] = keys[i];
      }
    }
  }

  // A bitonic network (Batcher, 1968) over the next power of two.
  template <typename Block>
  HIPPO_DEVICE static void sort(const Block& block, Shared& shared, unsigned filled) {
    unsigned size = 2;
    while (size < filled) {
      size *= 2;
    }
    block.each([&](unsigned thread) {
      for (unsigned i = filled + thread; i < size; i += threads) {
        shared.keys[i] = nn_no_key;
      }
    });
    for (unsigned run = 2; run <= size; run *= 2) {
      for (unsigned apart = run / 2; apart > 0; apart /= 2) {
        block.each([&](unsigned thread) { order_pairs(thread, shared, size, run, apart); });
      }
    }
  }

  // Pairs so far apart, within runs that ascend and descend in turns.
  HIPPO_DEVICE static void order_pairs(
      unsigned thread, Shared& shared, unsigned size, unsigned run, unsigned apart) {
    for (unsigned i = thread; i < size / 2; i += threads) {
      const unsigned low = i / apart * apart * 2 + i % apart;
      order(shared.keys[low], shared.keys[low + apart], (low & run) == 0);
    }
  }

  HIPPO_DEVICE static void order(NnKey& first, NnKey& second, bool ascending) {
    const NnKey low = smaller(first, second);
    const NnKey high = larger(first, second);
    first = ascending ? low : high;
    second = ascending ? high : low;
  }
};

// From sorted keys to what is written.
struct NnAnswers {
  static constexpr unsigned threads = NnSmallest<NnKeys>::best_max;
  using Shared = NothingShared;

  const NnKey* keys;
  unsigned best;
  NnAnswer* answers;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& /*shared*/) const {
    block.each([&](unsigned thread) {
      if (thread < best) {
        answers[thread] = {static_cast<unsigned>(keys[thread]),
                           nn_root_of_bits(static_cast<unsigned>(keys[thread] >> 32U))};
      }
    });
  }
};
