// The kernels of `blocks`: random blocks of a file, each read or overwritten once, a block a warp.
#pragma once

#include "workloads/arrays/warp.hpp"

#include <hippogriff/array.hpp>

#include <limits>

#ifndef __CUDACC__
#include "workloads/arrays/warp_launch.hpp"
#endif

using Word = std::uint64_t;

// What a warp has of a block at a time; longer ones are compared part by part.
inline constexpr unsigned part_bytes = 4096;

// A stream of a RandomField, for kernels: word i is its bits(stream, i).
struct Stream {
  std::uint64_t start = 0;

  [[nodiscard]] HIPPO_HOST_DEVICE Word word(std::uint64_t index) const {
    std::uint64_t z = start + index + 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }
};

// All blocks of a file in a random order that takes no memory. What is below the next power of two
// is permuted, again and again until it is a block's number.
struct Shuffle {
  std::uint64_t count = 0;  // of blocks, at least one
  std::uint64_t mask = 0;   // the power of two, less one
  unsigned shift = 0;       // half of its bits
  std::uint64_t key = 0;

  // Of item 0 to count - 1.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t block(std::uint64_t item) const {
    std::uint64_t at = item;
    do {
      at = permuted(at);
    } while (at >= count);
    return at;
  }

 private:
  // Each step can be taken back: odd factors, and bits that only change those below them.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t permuted(std::uint64_t at) const {
    at = (at ^ key) & mask;
    at = (at * 0xD1342543DE82EF95ULL) & mask;
    at ^= at >> shift;
    at = (at * 0x9FB21C651E98DF25ULL) & mask;
    at ^= at >> shift;
    at = (at * 0xC2B2AE3D27D4EB4FULL + key) & mask;
    return at ^ (at >> shift);
  }
};

struct Findings {
  unsigned long long blocks;  // that were read, or written
  unsigned long long wrong_blocks;
  unsigned long long wrong_words;
};

// What both kernels go through. What cannot be read or written the array remembers.
struct RandomBlocks {
  static constexpr unsigned at_once = 16;

  hippogriff::array_view<Word> words;
  Shuffle shuffle;
  std::uint64_t words_a_block = 0;
  std::uint64_t count = 0;  // of blocks that are wanted
  std::uint64_t warps = 0;  // of a GPU, at once; 0: as many as fit
  Findings* findings = nullptr;

  [[nodiscard]] std::uint64_t items() const { return count; }

  [[nodiscard]] HIPPO_HOST_DEVICE Range words_of(std::uint64_t item) const {
    const std::uint64_t first = shuffle.block(item) * words_a_block;
    return {first, first + words_a_block};
  }

  [[nodiscard]] std::uint64_t in_order_by() const {
    return warps == 0 ? std::numeric_limits<std::uint64_t>::max() : warps;
  }
};

// Compares every word with what is to be there.
struct ReadBlocks : RandomBlocks {
  template <unsigned Bytes>
  using Buffer = Window<Word, part_bytes>;

  Stream expected;
  std::uint64_t ahead_by = 0;  // how many blocks are asked for before they are wanted

  template <typename Warp, typename Window>
  HIPPO_DEVICE void operator()(const Warp& warp, Window& window, std::uint64_t item) const {
    ask_ahead(warp, item);
    unsigned long long wrong = 0;
    const auto compare = [&](std::uint64_t first, const Word* values, std::uint64_t of_part) {
      for (std::uint64_t i = warp.rank(); i < of_part; i += Warp::lanes) {
        wrong += values[i] == expected.word(first + i) ? 0 : 1;
      }
    };
    const bool came = walk(warp, words, window, words_of(item), compare);
    wrong = warp.sum(wrong);
    if (!came || warp.rank() != 0) {
      return;
    }
    fetch_add(findings->blocks, 1ULL);
    if (wrong != 0) {
      fetch_add(findings->wrong_blocks, 1ULL);
      fetch_add(findings->wrong_words, wrong);
    }
  }

  // The first item asks for those before which nobody has.
  template <typename Warp>
  HIPPO_DEVICE void ask_ahead(const Warp& warp, std::uint64_t item) const {
    if (ahead_by == 0) {
      return;
    }
    const std::uint64_t last = smaller(item + ahead_by, count - 1);
    for (std::uint64_t i = item == 0 ? 1 : item + ahead_by; i <= last; ++i) {
      words.prefetch_range(warp.group(), words_of(i).begin, words_a_block);
    }
  }
};

// Overwrites blocks as a whole, so that none is read: each with a stretch of random words, which
// begins where `places` says.
struct WriteBlocks : RandomBlocks {
  static constexpr std::uint64_t stretches = std::uint64_t{1} << 17U;

  template <unsigned Bytes>
  using Buffer = NothingShared;

  Stream places;
  const Word* random_words = nullptr;  // stretches - 1 and a block's

  template <typename Warp, typename Buffer>
  HIPPO_DEVICE void operator()(const Warp& warp, Buffer& /*buffer*/, std::uint64_t item) const {
    const std::uint64_t block = shuffle.block(item);
    const Word* from = random_words + places.word(block) % stretches;
    const auto status = words.write_range(warp.group(), block * words_a_block, words_a_block, from);
    if (status == hippogriff::array_view<Word>::status::success && warp.rank() == 0) {
      fetch_add(findings->blocks, 1ULL);
    }
  }
};

// Writes what a GPU's kernels wrote, and waits until the storage keeps it.
void flush_on_gpu(hippogriff::array<Word>& words);

#if !defined(__CUDACC__) && !HIPPOGRIFF_HAS_CUDA
inline void flush_on_gpu(hippogriff::array<Word>& /*words*/) {
  throw std::runtime_error("built without CUDA");
}
#endif
