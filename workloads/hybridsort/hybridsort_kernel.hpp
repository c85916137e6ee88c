// A pass puts keys into 256 buckets by eight bits of them and keeps the order of equals; four
// passes, from the lowest bits on, sort (Satish, Harris, Garland, "Designing efficient sorting
// algorithms for manycore GPUs", 2009). A block sorts its keys in shared memory first, so that it
// writes whole runs to each bucket.
#pragma once

#include "workloads/papers/block.hpp"

constexpr unsigned sort_buckets = 256;
constexpr unsigned sort_threads = 256;
constexpr unsigned sort_own = 16;  // keys, or numbers to sum, of a thread
constexpr unsigned sort_tile = sort_threads * sort_own;

// Unsigned numbers that sort like the floats they stand for.
HIPPO_DEVICE inline unsigned sort_key_of(unsigned float_bits) {
  return (float_bits & 0x80000000U) != 0 ? ~float_bits : float_bits | 0x80000000U;
}

HIPPO_DEVICE inline unsigned sort_bits_of(unsigned key) {
  return (key & 0x80000000U) != 0 ? key & 0x7FFFFFFFU : ~key;
}

// Numbers in shared memory that threads read 16 in a row of: one more after 32, so that they begin
// in different banks.
struct SortNumbers {
  unsigned values[sort_tile + sort_tile / 32];

  HIPPO_DEVICE unsigned& operator[](unsigned i) { return values[i + i / 32]; }
};

// For sums up to each thread.
struct SortSums {
  unsigned up_to[sort_threads];
};

// Every number becomes the sum of those before it. Returns the sum of all.
template <typename Block>
HIPPO_DEVICE unsigned sort_sum_before(const Block& block, SortNumbers& numbers, SortSums& sums) {
  typename Block::template PerThread<unsigned> add;
  block.each([&](unsigned thread) {
    unsigned sum = 0;
    for (unsigned i = 0; i < sort_own; ++i) {
      sum += numbers[thread * sort_own + i];
    }
    sums.up_to[thread] = sum;
  });
  for (unsigned apart = 1; apart < sort_threads; apart *= 2) {
    block.each(
        [&](unsigned thread) { add[thread] = thread >= apart ? sums.up_to[thread - apart] : 0; });
    block.each([&](unsigned thread) { sums.up_to[thread] += add[thread]; });
  }
  block.each([&](unsigned thread) {
    unsigned sum = thread > 0 ? sums.up_to[thread - 1] : 0;
    for (unsigned i = 0; i < sort_own; ++i) {
      unsigned& number = numbers[thread * sort_own + i];
      const unsigned own = number;
      number = sum;
      sum += own;
    }
  });
  return block.read(sums.up_to[sort_threads - 1]);
}

// One of the four passes.
struct SortPass {
  const unsigned* from;
  unsigned* to;
  std::size_t count;
  unsigned shift;
  bool from_floats;
  bool to_floats;

  [[nodiscard]] HIPPO_HOST_DEVICE std::size_t tiles() const { return parts_of(count, sort_tile); }

  // Beyond the last key there are more of the largest, which stay behind all others.
  [[nodiscard]] HIPPO_DEVICE unsigned key(std::size_t index) const {
    if (index >= count) {
      return ~0U;
    }
    return from_floats ? sort_key_of(from[index]) : from[index];
  }

  [[nodiscard]] HIPPO_DEVICE unsigned bucket(unsigned key) const {
    return key >> shift & (sort_buckets - 1);
  }

  [[nodiscard]] HIPPO_DEVICE unsigned keys_in(std::size_t tile) const {
    return static_cast<unsigned>(smaller<std::size_t>(count - tile * sort_tile, sort_tile));
  }
};

// How many keys of a tile belong to each bucket: [bucket][tile].
struct SortCount {
  static constexpr unsigned threads = sort_threads;

  struct Shared {
    unsigned counts[sort_buckets];
  };

  SortPass pass;
  unsigned* counts;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const std::size_t tile = block.index();
    block.each([&](unsigned thread) { shared.counts[thread] = 0; });
    block.each([&](unsigned thread) {
      const unsigned all = pass.keys_in(tile);
      for (unsigned i = thread; i < all; i += threads) {
        fetch_add(shared.counts[pass.bucket(pass.key(tile * sort_tile + i))], 1U);
      }
    });
    block.each(
        [&](unsigned thread) { counts[thread * pass.tiles() + tile] = shared.counts[thread]; });
  }
};

// Numbers become the sums of those before them in their piece of 4096; `sums` has the pieces' own.
struct SortSumPieces {
  static constexpr unsigned threads = sort_threads;

  struct Shared {
    SortNumbers numbers;
    SortSums sums;
  };

  unsigned* numbers;
  std::size_t count;
  unsigned* sums;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const unsigned sum = sum_piece(block, shared, block.index(), 0);
    block.each([&](unsigned thread) {
      if (thread == 0) {
        sums[block.index()] = sum;
      }
    });
  }

  template <typename Block>
  HIPPO_DEVICE unsigned sum_piece(const Block& block,
                                  Shared& shared,
                                  std::size_t piece,
                                  unsigned before) const {
    const std::size_t first = piece * sort_tile;
    block.each([&](unsigned thread) {
      for (unsigned i = thread; i < sort_tile; i += threads) {
        shared.numbers[i] = first + i < count ? numbers[first + i] : 0;
      }
    });
    const unsigned sum = sort_sum_before(block, shared.numbers, shared.sums);
    block.each([&](unsigned thread) {
      for (unsigned i = thread; i < sort_tile && first + i < count; i += threads) {
        numbers[first + i] = before + shared.numbers[i];
      }
    });
    return sum;
  }
};

// The same for all pieces one after the other, by one block.
struct SortSumAll {
  static constexpr unsigned threads = sort_threads;
  using Shared = SortSumPieces::Shared;

  SortSumPieces pieces;

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    unsigned before = 0;
    for (std::size_t piece = 0; piece < parts_of(pieces.count, sort_tile); ++piece) {
      before += pieces.sum_piece(block, shared, piece, before);
    }
  }
};

// Sorts a tile by its buckets and writes each bucket's run where the counts say.
struct SortScatter {
  static constexpr unsigned threads = sort_threads;
  static constexpr unsigned resident = 4;

  struct Shared {
    SortNumbers keys;
    SortNumbers counts;  // [four bits][thread]
    SortSums sums;
    unsigned places[sort_buckets];  // of the tile's first key of a bucket, among all keys
    unsigned starts[sort_buckets];  // the same, in the tile
  };

  SortPass pass;
  const unsigned* counts;  // [bucket][tile], summed in pieces
  const unsigned* sums;    // of the pieces

  template <typename Block>
  HIPPO_DEVICE void operator()(const Block& block, Shared& shared) const {
    const std::size_t tile = block.index();
    block.each([&](unsigned thread) { load(tile, thread, shared); });
    sort_by(block, shared, pass.shift);
    sort_by(block, shared, pass.shift + 4);
    block.each([&](unsigned thread) { find_starts(tile, thread, shared); });
    block.each([&](unsigned thread) { scatter(tile, thread, shared); });
  }

 private:
  using Own = Few<unsigned, sort_own>;

  HIPPO_DEVICE void load(std::size_t tile, unsigned thread, Shared& shared) const {
    for (unsigned i = thread; i < sort_tile; i += threads) {
      shared.keys[i] = pass.key(tile * sort_tile + i);
    }
    const std::size_t at = thread * pass.tiles() + tile;
    shared.places[thread] = counts[at] + sums[at / sort_tile];
  }

  // By four bits: a thread counts among its own 16 keys, then all counts are added up.
  template <typename Block>
  HIPPO_DEVICE static void sort_by(const Block& block, Shared& shared, unsigned shift) {
    typename Block::template PerThread<Own> keys;
    typename Block::template PerThread<Own> ranks;
    block.each([&](unsigned thread) {
      for (unsigned digit = 0; digit < 16; ++digit) {
        shared.counts[digit * threads + thread] = 0;
      }
      for (unsigned i = 0; i < sort_own; ++i) {
        const unsigned key = shared.keys[thread * sort_own + i];
        keys[thread][i] = key;
        ranks[thread][i] = shared.counts[(key >> shift & 15U) * threads + thread]++;
      }
    });
    sort_sum_before(block, shared.counts, shared.sums);
    block.each([&](unsigned thread) {
      for (unsigned i = 0; i < sort_own; ++i) {
        const unsigned key = keys[thread][i];
        const unsigned before = shared.counts[(key >> shift & 15U) * threads + thread];
        shared.keys[before + ranks[thread][i]] = key;
      }
    });
  }

  HIPPO_DEVICE void find_starts(std::size_t tile, unsigned thread, Shared& shared) const {
    const unsigned all = pass.keys_in(tile);
    for (unsigned i = thread; i < all; i += threads) {
      const unsigned bucket = pass.bucket(shared.keys[i]);
      if (i == 0 || pass.bucket(shared.keys[i - 1]) != bucket) {
        shared.starts[bucket] = i;
      }
    }
  }

  HIPPO_DEVICE void scatter(std::size_t tile, unsigned thread, Shared& shared) const {
    const unsigned all = pass.keys_in(tile);
    for (unsigned i = thread; i < all; i += threads) {
      const unsigned key = shared.keys[i];
      const unsigned bucket = pass.bucket(key);
      const std::size_t place = std::size_t{shared.places[bucket]} + (i - shared.starts[bucket]);
      pass.to[place] = pass.to_floats ? sort_bits_of(key) : key;
    }
  }
};
