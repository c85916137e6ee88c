// Whole pieces between a file and any host memory, one at a time: by O_DIRECT where the drive
// serves them and alignment allows, else through the page cache. For lanes without a pinbuffer
// slot.
#pragma once

#include "transfer/direct_queue.hpp"

#include <memory>

namespace hippogriff {

// Not thread-safe: belongs to one lane task. Throws Error(io_error, short_file).
class PieceIo {
 public:
  PieceIo(LaneContext& context, Transfer& transfer) : context_(context), transfer_(transfer) {}

  void read(Range piece, std::byte* memory, Warmth warmth);
  void write(Range piece, std::byte* memory);

 private:
  [[nodiscard]] bool aligned(std::uint64_t offset, const std::byte* memory) const;
  void finish_direct();

  LaneContext& context_;
  Transfer& transfer_;
  std::unique_ptr<DirectQueue> queue_;  // made at the first piece that can use it
};

}  // namespace hippogriff
