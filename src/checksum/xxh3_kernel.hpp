// What the host and the kernel of xxh3_kernel.cu say to each other.
#pragma once

#include <cstdint>

namespace hippogriff::xxh3 {

inline constexpr const char* kernel_name = "hippogriff_xxh3_blocks";

// A warp for each block of memory, so that few blocks still spread over all of a GPU.
inline constexpr unsigned threads_per_block = 32;

// Some bytes to hash.
struct Block {
  std::uint64_t address;
  std::uint64_t size_bytes;
};

// The kernel's one argument: device addresses of the blocks and of their results.
struct Launch {
  std::uint64_t blocks;
  std::uint64_t checksums;
};

static_assert(sizeof(Block) == 16 && sizeof(Launch) == 16);

}  // namespace hippogriff::xxh3
