// Checksums of memory that lands in pieces: whoever brings the last of a block hashes it, while
// most of it is in that processor's cache. Memory is read no second time for that.
#pragma once

#include "base/range.hpp"
#include "checksum/blocks.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace hippogriff {

// Host memory, and from where in a file its bytes come.
struct LandingPart {
  std::uint64_t offset = 0;
  MemoryPart memory;
};

class LandingChecksums {
 public:
  // `parts` ascend in the file and do not overlap there. `checksums` has room for just the blocks
  // of all of them, in order, and stays until nothing lands any more. Throws
  // Error(invalid_argument), std::bad_alloc.
  LandingChecksums(std::vector<LandingPart> parts,
                   std::uint64_t block_bytes,
                   std::span<std::uint64_t> checksums);

  [[nodiscard]] std::uint64_t block_bytes() const noexcept { return block_bytes_; }

  // These bytes of the file are in their memory; what belongs to no part does not count. Each byte
  // lands once. Thread-safe.
  void landed(Range range) noexcept;

  // How much of what comes next from `offset` on to bring at a time, `most` bytes or fewer: up to
  // where a block ends, if one ends there. Thread-safe.
  [[nodiscard]] std::uint64_t step_bytes(std::uint64_t offset, std::uint64_t most) const noexcept;

  // From `offset` on to the end of the block that it lies in; 0 where a block begins, and outside
  // of all. Thread-safe.
  [[nodiscard]] std::uint64_t rest_of_block(std::uint64_t offset) const noexcept;

  // How much of a piece of the file to bring, up to the last end of a block in it, of whichever
  // part; all of it where none ends. Thread-safe.
  [[nodiscard]] std::uint64_t whole_blocks_of(Range piece) const noexcept;

 private:
  [[nodiscard]] std::size_t first_part_behind(std::uint64_t offset) const noexcept;
  void landed_in(std::size_t part, std::uint64_t begin, std::uint64_t end) noexcept;

  const std::vector<LandingPart> parts_;
  const std::uint64_t block_bytes_;
  const std::span<std::uint64_t> checksums_;
  std::vector<std::uint64_t> first_blocks_;  // of each part
  // Of each block that does not land as a whole.
  std::unique_ptr<std::atomic<std::uint64_t>[]> landed_bytes_;
};

}  // namespace hippogriff
