// Writes of pieces of host memory through the page cache: what the lanes share that write a receive
// so.
#pragma once

#include "transfer/lanes.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace hippogriff {

// The extent, mapped for writing: threads make the pages of a file in memory side by side there,
// while write() lets one in at a time. Holds nothing where that is not planned, or not possible.
class MappedTarget {
 public:
  explicit MappedTarget(Transfer& transfer);
  ~MappedTarget();
  MappedTarget(const MappedTarget&) = delete;
  MappedTarget& operator=(const MappedTarget&) = delete;

  [[nodiscard]] bool mapped() const { return !mapping_.empty(); }

  // Only when mapped. Returns how many bytes got there, from the piece's start: none beyond the
  // file's end as it is now, which a mapping does not move, even where its last page is there.
  std::uint64_t write(Range piece, const std::byte* memory) const;

 private:
  File& file_;
  std::uint64_t begin_ = 0;
  std::span<std::byte> mapping_;
};

// Not thread-safe: belongs to one lane task.
class BufferedWrites {
 public:
  // Bytes that arrive count for `lane`.
  BufferedWrites(LaneContext& context, Transfer& transfer, Lane lane)
      : context_(context), transfer_(transfer), lane_(lane), target_(transfer) {}

  // Writes a whole piece, at once. Throws Error(io_error).
  void write(Range piece, const std::byte* memory) const;

 private:
  LaneContext& context_;
  Transfer& transfer_;
  const Lane lane_;
  const MappedTarget target_;
};

}  // namespace hippogriff
