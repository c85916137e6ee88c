// Counting blocks, and handing them out.
#include "checksum/blocks.hpp"

#include "base/error.hpp"

#include <algorithm>

namespace hippogriff {

std::uint64_t count_blocks(std::span<const MemoryPart> parts, std::uint64_t block_bytes) {
  if (block_bytes == 0) {
    throw_invalid("compute checksums", "the blocks would have 0 bytes");
  }
  std::uint64_t count = 0;
  std::uint64_t total_bytes = 0;
  for (const MemoryPart& part : parts) {
    // As much as all memory: then no sum below overflows.
    if (part.size_bytes > INT64_MAX - total_bytes ||
        part.address.value > UINT64_MAX - part.size_bytes) {
      throw_invalid("compute checksums", "the sizes are beyond any memory");
    }
    total_bytes += part.size_bytes;
    count += part.size_bytes / block_bytes + (part.size_bytes % block_bytes == 0 ? 0 : 1);
  }
  return count;
}

ClaimedBlocks BlockQueue::claim(std::span<MemoryPart> blocks, std::uint64_t enough_bytes) {
  const std::lock_guard lock(mutex_);
  ClaimedBlocks claimed{.first = next_};
  std::uint64_t bytes = 0;
  while (part_ < parts_.size() && claimed.count < blocks.size() && bytes < enough_bytes) {
    const MemoryPart& part = parts_[part_];
    if (offset_ == part.size_bytes) {
      ++part_;
      offset_ = 0;
      continue;
    }
    const std::uint64_t size_bytes = std::min(block_bytes_, part.size_bytes - offset_);
    blocks[claimed.count++] = {part.address + offset_, size_bytes};
    offset_ += size_bytes;
    bytes += size_bytes;
  }
  next_ += claimed.count;
  return claimed;
}

}  // namespace hippogriff
