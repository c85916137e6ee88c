// Memory cut into the blocks that get a checksum each.
#pragma once

#include "device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

namespace hippogriff {

// Adjacent memory. It is cut every block_bytes from its own beginning; its last block may be
// shorter, and no memory has no block.
struct MemoryPart {
  DeviceAddress address;
  std::uint64_t size_bytes = 0;
};

// How many blocks all parts have. Throws Error(invalid_argument) for blocks of no bytes, and for
// parts beyond any memory.
std::uint64_t count_blocks(std::span<const MemoryPart> parts, std::uint64_t block_bytes);

// Blocks to work on, and the number of the first.
struct ClaimedBlocks {
  std::size_t first = 0;
  std::size_t count = 0;
};

// Hands out the blocks of parts, in order, each once. Thread-safe. `parts` must stay.
class BlockQueue {
 public:
  BlockQueue(std::span<const MemoryPart> parts, std::uint64_t block_bytes)
      : parts_(parts), block_bytes_(block_bytes) {}

  // Fills `blocks` as far as there are blocks, and until they have `enough_bytes`.
  ClaimedBlocks claim(std::span<MemoryPart> blocks, std::uint64_t enough_bytes);

 private:
  const std::span<const MemoryPart> parts_;
  const std::uint64_t block_bytes_;
  std::mutex mutex_;
  std::size_t part_ = 0;
  std::uint64_t offset_ = 0;  // of the next block in the part
  std::size_t next_ = 0;      // its number
};

}  // namespace hippogriff
