// One read against an index of the reference: every window within so many mismatches.
#pragma once

#include "workloads/sharing/work.hpp"

#include <cstddef>
#include <cstdint>

constexpr int read_letters = 25;
constexpr std::uint32_t no_match = 0xFFFFFFFFU;

// Up to 32 letters are packed, two bits each, the first letter highest: windows sort as texts do.
HIPPO_HOST_DEVICE inline int packed_mismatches(std::uint64_t a, std::uint64_t b) {
  std::uint64_t differ = a ^ b;
  differ = (differ | (differ >> 1U)) & 0x5555555555555555ULL;
  differ = (differ & 0x3333333333333333ULL) + ((differ >> 2U) & 0x3333333333333333ULL);
  differ = (differ + (differ >> 4U)) & 0x0F0F0F0F0F0F0F0FULL;
  return static_cast<int>((differ * 0x0101010101010101ULL) >> 56U);
}

struct AlignHit {
  std::uint32_t count = 0;         // windows within the mismatches allowed
  std::uint32_t best = no_match;   // mismatches of the best of them
  std::uint32_t place = no_match;  // of the first of the best, in the reference

  friend bool operator==(const AlignHit&, const AlignHit&) = default;
};

// An item is a read. The windows of the reference, sorted, are a suffix array cut at 25 letters;
// its tree of prefixes is descended, and a branch ends with one mismatch too many. All pointers are
// the device's.
struct AlignWork {
  const std::uint64_t* windows;  // sorted
  const std::uint32_t* places;   // where each of them is in the reference
  std::uint32_t window_count;
  std::uint32_t mismatches_max;
  const std::uint64_t* reads;
  AlignHit* hits;

  HIPPO_HOST_DEVICE void operator()(std::size_t item) const {
    Node stack[3 * read_letters + 4];  // a node has four children, and one of them is next
    int depth_of_stack = 0;
    AlignHit hit;
    const std::uint64_t read = reads[item];
    stack[depth_of_stack++] = {0, window_count, 0, 0};
    while (depth_of_stack > 0) {
      const Node node = stack[--depth_of_stack];
      if (node.last - node.first <= few || node.depth == read_letters) {
        compare(read, node, hit);
        continue;
      }
      std::uint32_t first = node.first;
      for (std::uint32_t letter = 0; letter < 4; ++letter) {
        const std::uint32_t last = letter == 3 ? node.last : end_of(node, letter, first);
        const std::uint32_t mismatches =
            node.mismatches + (letter_of(read, node.depth) == letter ? 0 : 1);
        if (first < last && mismatches <= mismatches_max) {
          stack[depth_of_stack++] = {first, last, node.depth + 1, mismatches};
        }
        first = last;
      }
    }
    hits[item] = hit;
  }

 private:
  static constexpr std::uint32_t few = 4;  // windows that are compared without descending further

  // The windows [first, last), which have the same first `depth` letters.
  struct Node {
    std::uint32_t first;
    std::uint32_t last;
    std::uint32_t depth;
    std::uint32_t mismatches;
  };

  HIPPO_HOST_DEVICE static std::uint32_t letter_of(std::uint64_t packed, std::uint32_t index) {
    return static_cast<std::uint32_t>(packed >> (2 * (read_letters - 1 - index))) & 3U;
  }

  // Where the windows end whose letter at the node's depth is `letter` at most, from `from` on.
  [[nodiscard]] HIPPO_HOST_DEVICE std::uint32_t end_of(const Node& node,
                                                       std::uint32_t letter,
                                                       std::uint32_t from) const {
    std::uint32_t to = node.last;
    while (from < to) {
      const std::uint32_t middle = from + (to - from) / 2;
      if (letter_of(windows[middle], node.depth) <= letter) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  HIPPO_HOST_DEVICE void compare(std::uint64_t read, const Node& node, AlignHit& hit) const {
    for (std::uint32_t w = node.first; w < node.last; ++w) {
      const auto mismatches = static_cast<std::uint32_t>(packed_mismatches(read, windows[w]));
      if (mismatches > mismatches_max) {
        continue;
      }
      ++hit.count;
      if (mismatches < hit.best || (mismatches == hit.best && places[w] < hit.place)) {
        hit.best = mismatches;
        hit.place = places[w];
      }
    }
  }
};
