// O_DIRECT reads and writes of whole pieces out of a queue: alignment, short results and refusals
// dealt with once for both directions.
#pragma once

#include "transfer/depth_controller.hpp"
#include "transfer/lanes.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace hippogriff {

// What offsets, sizes and memory of O_DIRECT requests to the file are multiples of; pages at least.
[[nodiscard]] std::uint64_t drive_alignment(const File& file);

// Not thread-safe: belongs to one lane task. Memory handed in must stay until its request came
// back.
class DirectQueue {
 public:
  // Small requests and more of them keep a drive as busy with less memory, which stays in the
  // processors' caches then: virtual drives are read more slowly with more than some 4 MiB under
  // way. Eight reads of 512 KiB got 2.31 GB/s beside an H100, two of 1 MiB 2.21, eight 2.03; beside
  // an H200 six of 512 KiB 2.66, four 2.41, eight 2.46. Four writes of 1 MiB 2.27 and two of 2 MiB
  // 2.06 (H100).
  static constexpr std::uint64_t read_bytes = std::uint64_t{512} << 10;
  static constexpr std::uint64_t write_bytes = std::uint64_t{1} << 20;
  // A drive's depth, as it is measured and shared, counts so many times for them.
  static constexpr std::uint32_t reads_per_depth = 3;
  static constexpr std::uint32_t writes_per_depth = 2;
  // What a transfer begins with at least that is the only one at its drive: eight took 12 % less
  // time than four beside two H200s, twelve 15 and 9 %.
  static constexpr std::uint32_t writes_alone = 8;

  DirectQueue(LaneContext& context, Transfer& transfer, std::size_t depth);

  // Offsets are widened to the file's alignment: a piece of up to `room_bytes` less the alignment
  // fits memory of `room_bytes`. Where the piece begins in the memory:
  [[nodiscard]] std::uint64_t lead_bytes(Range piece) const;

  // The part of a piece that may be written by O_DIRECT; the piece's start and nothing when none.
  [[nodiscard]] Range aligned_part(Range piece) const;

  // Reads the piece into memory + lead_bytes(piece), beginning with submit_reads() or reap() at the
  // latest. `memory` must be aligned. `buffer`: what it is a part of, where that stays as long as
  // the queue; see IoRequest.
  void read(Range piece, std::byte* memory, std::uint64_t tag, std::span<std::byte> buffer = {});

  void submit_reads() { queue_->submit_prepared(); }

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

  using Begin = void (IoQueue::*)(const IoRequest&);
  void start(std::uint64_t tag, Request request, Begin begin);
  bool advance(Request& request, std::int64_t result, Failure& failure);
  void move_buffered(Request& request);

  LaneContext& context_;
  Transfer& transfer_;
  std::uint64_t alignment_;
  std::unique_ptr<IoQueue> queue_;
  std::unordered_map<std::uint64_t, Request> requests_;
};

// The longest piece that fits a slot wherever in the file it begins, both ends widened to
// `alignment` (drive_alignment of a file, FileFacts::direct_alignment_max at most).
[[nodiscard]] constexpr std::uint64_t widened_piece_max(std::uint64_t alignment) {
  return Pinbuffer::slot_bytes - 2 * (alignment - WorkMap::cut_bytes);
}

// The longest piece up to `bytes` (which has `alignment` at least) that fits a slot, too, and in
// whole steps of the drive: else those behind it would all have edges that are not aligned.
[[nodiscard]] constexpr std::uint64_t whole_steps(std::uint64_t bytes, std::uint64_t alignment) {
  return align_down(std::min(bytes, widened_piece_max(alignment)), alignment);
}

// How many slots the lane may use, of those it would: as many as the transfer's host memory has
// beside the plan's channels.
[[nodiscard]] std::size_t direct_io_slots(const Transfer& transfer, std::size_t wanted);

// How large the lane's requests are: `usual`, or up to twice that where it has fewer than the
// plan's depth means, because of the slots it may have or of HIPPOGRIFF_CHANNELS.
[[nodiscard]] std::uint64_t request_bytes(const Transfer& transfer,
                                          std::uint64_t usual,
                                          std::size_t slots);

// What holds such a request: a part of a slot where one does, since a slot for each would have to
// be pinned first.
[[nodiscard]] std::size_t request_room(const Transfer& transfer, std::uint64_t request_bytes);

// Keeps a transfer to its share of the drive while other processes use it. Not thread-safe.
class DriveShare {
 public:
  // Both must outlive it.
  DriveShare(const Transfer& transfer, DepthController& depth)
      : transfer_(transfer), depth_(depth) {
    look(Clock::now());
  }

  // Asks for the share ten times a second.
  void look(Clock::time_point now);

 private:
  const Transfer& transfer_;
  DepthController& depth_;
  Clock::time_point next_look_;
};

// Begins with as many requests as the plan's depth means.
[[nodiscard]] DepthController make_depth_controller(const Transfer& transfer,
                                                    std::uint32_t depth_max);

}  // namespace hippogriff
