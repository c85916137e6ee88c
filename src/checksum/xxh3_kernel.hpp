// What the host and the kernel of xxh3_kernel.cu say to each other.
#pragma once

#include <cstdint>

namespace hippogriff::xxh3 {

inline constexpr const char* kernel_name = "hippogriff_xxh3_blocks";

// A warp, so that few blocks still spread over all of a GPU; four blocks of memory for each.
inline constexpr unsigned threads_per_group = 32;
inline constexpr unsigned blocks_per_group = threads_per_group / 8;

// Some bytes to hash.
struct Block {
  std::uint64_t address;
  std::uint64_t size_bytes;
};

// The kernel's one argument: device addresses of the blocks and of as many results.
struct Launch {
  std::uint64_t blocks;
  std::uint64_t checksums;
  std::uint32_t count;
  std::uint32_t padding;
};

static_assert(sizeof(Block) == 16 && sizeof(Launch) == 24);

}  // namespace hippogriff::xxh3
