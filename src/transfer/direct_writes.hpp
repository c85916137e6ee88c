// Writes of pieces of host memory by O_DIRECT, as many at once as the drive and its other users
// want: what the lanes share that write a receive past the page cache.
#pragma once

#include "transfer/direct_queue.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace hippogriff {

// Not thread-safe: belongs to one lane task. Memory handed in must stay until its write has ended,
// or until this is destroyed, which waits for what is in flight.
class DirectWrites {
 public:
  static constexpr std::uint32_t writes_max = DepthController::tried_max;

  // Bytes that arrive count for `lane`.
  DirectWrites(LaneContext& context, Transfer& transfer, Lane lane);

  // How many should be in flight now.
  [[nodiscard]] std::uint32_t depth() const { return depth_.depth(); }

  [[nodiscard]] std::size_t in_flight() const { return queue_.in_flight(); }

  [[nodiscard]] bool has_room() const { return in_flight() < depth(); }

  // Where a piece should begin in aligned memory.
  [[nodiscard]] std::uint64_t lead_bytes(Range piece) const { return queue_.lead_bytes(piece); }

  // Writes the edges through the page cache, at once, and queues the aligned middle; false when
  // there is none. `tag` is of one write in flight; `buffer` as DirectQueue::write has it. Throws
  // Error(io_error): then nothing of the piece is in flight.
  bool write(Range piece, std::byte* memory, std::uint64_t tag, std::span<std::byte> buffer = {});

  // The tags of writes that have ended, waiting up to `timeout` for the first. Those that failed
  // have failed the transfer.
  std::vector<std::uint64_t> collect(std::chrono::nanoseconds timeout);

 private:
  void write_edge(Range edge, const std::byte* memory);

  LaneContext& context_;
  Transfer& transfer_;
  const Lane lane_;
  DepthController depth_;
  DriveShare share_;
  DirectQueue queue_;
};

}  // namespace hippogriff
