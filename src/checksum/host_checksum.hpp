// Checksums of memory that this process can read.
#pragma once

#include "checksum/blocks.hpp"

namespace hippogriff {

// Stores XXH3 of each block of the parts, in order; `checksums` has room for just those. Works on
// the caller's thread and on as many more as the bytes are worth, at most `threads_max` in all.
// The addresses are host pointers. Throws std::bad_alloc.
void checksum_host_memory(std::span<const MemoryPart> parts,
                          std::uint64_t block_bytes,
                          unsigned threads_max,
                          std::span<std::uint64_t> checksums);

}  // namespace hippogriff
