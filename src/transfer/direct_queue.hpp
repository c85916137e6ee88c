// O_DIRECT reads and writes of whole pieces out of a queue: alignment, short results and refusals
// dealt with once for both directions.
#pragma once

#include "transfer/depth_controller.hpp"
#include "transfer/lanes.hpp"

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace hippogriff {

// Not thread-safe: belongs to one lane task. Memory handed in must stay until its request came
// back.
class DirectQueue {
 public:
  // Drives move requests of this size as fast as larger ones, and some faster.
  static constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  // Twice as many writes as reads are under way. Virtual drives, four writes of 1 MiB instead of
  // two of 2 MiB: 2.27 and 2.18 GB/s instead of 2.06 and 2.19 in two processes beside an H100, 2.69
  // instead of 2.62 on another machine; more reads gained nothing.
  static constexpr std::uint32_t writes_per_read = 2;

  DirectQueue(LaneContext& context, Transfer& transfer, std::size_t depth);

  // Offsets are widened to the file's alignment: a piece of up to `room_bytes` less the alignment
  // fits memory of `room_bytes`. Where the piece begins in the memory:
  [[nodiscard]] std::uint64_t lead_bytes(Range piece) const;

  // The part of a piece that may be written by O_DIRECT; the piece's start and nothing when none.
  [[nodiscard]] Range aligned_part(Range piece) const;

  // Reads the piece into memory + lead_bytes(piece). `memory` must be aligned. `buffer`: what it is
  // a part of, where that stays as long as the queue; see IoRequest.
  void read(Range piece, std::byte* memory, std::uint64_t tag, std::span<std::byte> buffer = {});
  // Writes an aligned piece out of `memory`.
  void write(Range piece, std::byte* memory, std::uint64_t tag, std::span<std::byte> buffer = {});

  struct Finished {
    std::uint64_t tag = 0;
    Range piece;
    Failure failure;  // status ok: all of the piece is there
  };

  // What has finished, waiting up to `timeout` for the first.
  std::vector<Finished> reap(std::chrono::nanoseconds timeout);

  [[nodiscard]] std::size_t in_flight() const { return requests_.size(); }

 private:
  struct Request {
    IoRequest io;
    Range piece;
    std::uint64_t moved = 0;   // bytes of the widened range
    std::uint64_t needed = 0;  // bytes of it that make the piece whole
    Clock::time_point begin;
  };

  void submit(std::uint64_t tag, Request request);
  bool advance(Request& request, std::int64_t result, Failure& failure);
  void move_buffered(Request& request);

  LaneContext& context_;
  Transfer& transfer_;
  std::uint64_t alignment_;
  std::unique_ptr<IoQueue> queue_;
  std::unordered_map<std::uint64_t, Request> requests_;
};

// How many slots the lane may use, of those it would: as many as the transfer's host memory has
// beside the plan's channels.
[[nodiscard]] std::size_t direct_io_slots(const Transfer& transfer, std::size_t wanted);

// Keeps a transfer to its share of the drive while other processes use it. Not thread-safe.
class DriveShare {
 public:
  // Both must outlive it. `requests`: of the lane, for one of the drive's depth.
  DriveShare(const Transfer& transfer, DepthController& depth, std::uint32_t requests = 1)
      : transfer_(transfer), depth_(depth), requests_(requests) {
    look(Clock::now());
  }

  // Asks for the share ten times a second.
  void look(Clock::time_point now);

 private:
  const Transfer& transfer_;
  DepthController& depth_;
  std::uint32_t requests_;
  Clock::time_point next_look_;
};

// Begins with the plan's depth, times `requests`.
[[nodiscard]] DepthController make_depth_controller(const Transfer& transfer,
                                                    std::uint32_t depth_max,
                                                    std::uint32_t requests = 1);

}  // namespace hippogriff
