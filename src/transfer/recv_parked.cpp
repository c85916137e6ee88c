// Device to host memory as fast as it goes, host memory to the file beside that: results leave the
// device before the disk has them (Gullfoss 4.2).
#include "transfer/buffered_writes.hpp"
#include "transfer/direct_writes.hpp"
#include "transfer/parking_place.hpp"

#include <algorithm>
#include <chrono>
#include <list>
#include <unordered_map>
#include <utility>

namespace hippogriff {

namespace {

// Who waits for another task looks for other things to do so often.
constexpr std::chrono::milliseconds look_again{1};

// What a task does as long as it lives, so that others know.
class Turn {
 public:
  Turn(ParkedPieces& parked, void (ParkedPieces::*end)()) : parked_(parked), end_(end) {}

  ~Turn() { (parked_.*end_)(); }

  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  ParkedPieces& parked_;
  void (ParkedPieces::*end_)();
};

// What a task got done at one of the two ends.
struct Work {
  LaneOutcome outcome = LaneOutcome::finished;
  bool any = false;
};

// --- Device to parking ---

bool all_else_is_drained(const Transfer& transfer) {
  return transfer.drained_bytes() + transfer.work.held_bytes() == transfer.request().extent.size;
}

struct Claimed {
  Range range;
  bool last = false;
};

// What was held back leaves the device with the rest, and is written after it.
std::optional<Claimed> claim_to_park(Transfer& transfer, std::uint64_t most_bytes) {
  if (const auto piece = claim_any(transfer, Warmth::cold, most_bytes)) {
    return Claimed{piece->range, false};
  }
  if (all_else_is_drained(transfer) && transfer.work.release_held()) {
    if (const auto held = claim_any(transfer, Warmth::warm, most_bytes)) {
      return Claimed{held->range, true};
    }
  }
  return std::nullopt;
}

class Drainer {
 public:
  Drainer(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        event_(context.device.create_event()),
        alignment_(drive_alignment(transfer.file())) {}

  // Until nothing is left on the device, or there is no memory to park in and none is to come.
  Work run() {
    Work drained;
    while (!transfer_.stopping() && transfer_.work.unclaimed_bytes() > 0) {
      if (context_.should_yield()) {
        drained.outcome = LaneOutcome::yielded;
        break;
      }
      ParkingPlace place(context_.parking, transfer_.host_memory, transfer_.parked.take_spare());
      if (place.get() == nullptr) {
        if (!transfer_.parked.await_spare(look_again)) {
          break;
        }
        continue;
      }
      const auto claimed = claim_to_park(transfer_, room_bytes());
      if (!claimed) {
        break;
      }
      drained.any = park(*claimed, place) || drained.any;
    }
    return drained;
  }

 private:
  // Of a place, for a piece that begins anywhere and leaves the next one at a step of the drive.
  [[nodiscard]] std::uint64_t room_bytes() const {
    return align_down(Parking::piece_bytes - (alignment_ - WorkMap::cut_bytes), alignment_);
  }

  bool park(const Claimed& claimed, ParkingPlace& place) {
    const Range range = claimed.range;
    const std::uint64_t lead_bytes = range.offset % alignment_;  // aligned as it is in the file
    const bool drained = attempt(transfer_, [&] {
      static const SliceName name("drain");
      const TraceSlice slice(context_.trace, context_.copy_track, name, range.offset, range.size);
      place.set_in_use(true);
      context_.stream.copy_to_host(
          place.get() + lead_bytes, transfer_.address_of(range.offset), range.size, *event_);
      await_copy(context_, *event_, "drain the device");
      place.set_in_use(false);
      const ParkedPiece piece{place.get(), lead_bytes, range.offset, range.size};
      if (claimed.last) {
        transfer_.parked.add_last(piece);
      } else {
        transfer_.parked.add(piece);
      }
      place.hand_on();
      transfer_.drained(range.size);
    });
    if (!drained && context_.stream.drain()) {
      place.set_in_use(false);
    }
    return drained;
  }

  LaneContext& context_;
  Transfer& transfer_;
  const std::unique_ptr<Event> event_;
  const std::uint64_t alignment_;
};

Work drain_device(LaneContext& context, Transfer& transfer) {
  if (transfer.work.unclaimed_bytes() == 0 || !transfer.parked.begin_draining()) {
    return {};
  }
  const Turn turn(transfer.parked, &ParkedPieces::end_draining);
  return Drainer(context, transfer).run();
}

// --- Parking to file ---

// All places that wait to be filled again, unless something is left to fill them with. After each
// that comes to wait, and after draining: either may be what the other did not see.
void release_spares(LaneContext& context, Transfer& transfer) {
  const std::uint64_t left = transfer.work.unclaimed_bytes();
  const bool refill = !transfer.stopping() && (left > transfer.work.held_bytes() ||
                                               (left > 0 && transfer.parked.draining()));
  while (!refill) {
    std::byte* spare = transfer.parked.take_spare();
    if (spare == nullptr) {
      return;
    }
    context.parking.release(spare);
  }
}

// A piece that a task writes, taken when this is made. Its place goes back, or is filled again,
// when this is destroyed.
class WritingPiece {
 public:
  WritingPiece(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        piece_(transfer.parked.take_to_write(transfer.request().extent.size - transfer.bytes_done())
                   .value_or(ParkedPiece{})),
        begin_(piece_.offset) {}

  ~WritingPiece() {
    if (taken()) {
      transfer_.parked.written(piece_.memory);
      release_spares(context_, transfer_);
    }
  }

  WritingPiece(const WritingPiece&) = delete;
  WritingPiece& operator=(const WritingPiece&) = delete;

  // False when there was none.
  [[nodiscard]] bool taken() const { return piece_.memory != nullptr; }

  // What has not been taken to write yet.
  [[nodiscard]] Range rest() const { return {begin_, piece_.offset + piece_.size_bytes - begin_}; }

  // Up to `most_bytes` from the multiple of `alignment` before it on.
  Range next(std::uint64_t most_bytes, std::uint64_t alignment) {
    const Range all = rest();
    const std::uint64_t end = std::min(all.end(), align_down(begin_, alignment) + most_bytes);
    begin_ = end;
    return {all.offset, end - all.offset};
  }

  [[nodiscard]] std::byte* at(std::uint64_t offset) const {
    return piece_.bytes() + (offset - piece_.offset);
  }

  std::uint32_t in_flight = 0;  // requests

 private:
  LaneContext& context_;
  Transfer& transfer_;
  const ParkedPiece piece_;
  std::uint64_t begin_;
};

Work write_buffered(LaneContext& context, Transfer& transfer) {
  const BufferedWrites writes(context, transfer, Lane::parked);
  Work written;
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      written.outcome = LaneOutcome::yielded;
      break;
    }
    const bool more = transfer.parked.await_piece(look_again);
    const WritingPiece piece(context, transfer);
    if (piece.taken()) {
      const Range all = piece.rest();
      attempt(transfer, [&] { writes.write(all, piece.at(all.offset)); });
      written.any = true;
    } else if (!more) {
      break;
    }
  }
  return written;
}

// Cuts pieces into requests of the size that the pipelined receive has.
class DirectWriter {
 public:
  DirectWriter(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        alignment_(drive_alignment(transfer.file())),
        request_bytes_(request_bytes(transfer, DirectQueue::write_bytes, DirectWrites::writes_max)),
        writes_(context, transfer, Lane::parked) {}

  Work run() {
    Work written;
    bool taking = true;
    while (true) {
      taking = taking && !transfer_.stopping();
      if (taking && context_.should_yield()) {
        taking = false;
        written.outcome = LaneOutcome::yielded;
      }
      submit(taking, written);
      if (writes_.in_flight() > 0) {
        collect();
        continue;
      }
      if (!taking) {
        break;
      }
      const bool more = transfer_.parked.await_piece(look_again);
      if (!take() && !more) {
        break;
      }
    }
    return written;
  }

 private:
  // The piece whose requests are submitted next, if there is one.
  bool take() {
    if (current_ == nullptr) {
      WritingPiece& piece = pieces_.emplace_back(context_, transfer_);
      if (piece.taken()) {
        current_ = &piece;
      } else {
        pieces_.pop_back();
      }
    }
    return current_ != nullptr;
  }

  // A piece that was begun is submitted as a whole, unless the transfer stops.
  void submit(bool taking, Work& written) {
    while (writes_.has_room() && (current_ != nullptr || (taking && take()))) {
      WritingPiece& piece = *current_;
      const Range part = piece.next(request_bytes_, alignment_);
      if (part.empty() || transfer_.stopping()) {
        current_ = nullptr;
        drop_if_written(piece);
        continue;
      }
      written.any = true;
      const std::uint64_t tag = next_tag_++;
      bool under_way = false;
      attempt(transfer_, [&] { under_way = writes_.write(part, piece.at(part.offset), tag); });
      if (under_way) {
        ++piece.in_flight;
        by_tag_.emplace(tag, &piece);
      }
    }
  }

  void collect() {
    // A piece may come that there is room for.
    const auto patience =
        writes_.has_room() ? std::chrono::milliseconds(look_again) : std::chrono::milliseconds(20);
    for (const std::uint64_t tag : writes_.collect(patience)) {
      const auto found = by_tag_.find(tag);
      WritingPiece& piece = *found->second;
      by_tag_.erase(found);
      --piece.in_flight;
      drop_if_written(piece);
    }
  }

  void drop_if_written(const WritingPiece& piece) {
    if (&piece != current_ && piece.in_flight == 0) {
      pieces_.remove_if([&piece](const WritingPiece& each) { return &each == &piece; });
    }
  }

  LaneContext& context_;
  Transfer& transfer_;
  const std::uint64_t alignment_;
  const std::uint64_t request_bytes_;
  std::list<WritingPiece> pieces_;  // outlive the writes, which use their memory
  WritingPiece* current_ = nullptr;
  std::unordered_map<std::uint64_t, WritingPiece*> by_tag_;
  std::uint64_t next_tag_ = 0;
  DirectWrites writes_;
};

bool writes_direct(const Transfer& transfer) {
  return transfer.decision().choice().plan.direct_io_depth > 0;
}

// As many as write an ordinary receive of the file: one keeps the drive's requests in flight.
std::uint32_t parked_writers(const Transfer& transfer) {
  return writes_direct(transfer)
             ? 1
             : std::max(transfer.decision().choice().plan.buffered_channels, 1U);
}

Work write_parked(LaneContext& context, Transfer& transfer) {
  if (!transfer.parked.begin_writing(parked_writers(transfer))) {
    return {};
  }
  const Turn turn(transfer.parked, &ParkedPieces::end_writing);
  if (!transfer.parked.await_piece(look_again) && transfer.parked.bytes() == 0) {
    return {};  // nothing to make a queue for
  }
  return writes_direct(transfer) ? DirectWriter(context, transfer).run()
                                 : write_buffered(context, transfer);
}

}  // namespace

// One that drains the device, and those that write: no more than there are pieces.
std::uint32_t parked_recv_tasks(const Transfer& transfer) {
  const std::uint64_t pieces =
      align_up(transfer.request().extent.size, Parking::piece_bytes) / Parking::piece_bytes;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(pieces, 1, 1 + parked_writers(transfer)));
}

// Each task drains if no other does, then writes. What does not fit into the budget goes through
// the usual lanes.
LaneOutcome recv_parked(LaneContext& context, Transfer& transfer) {
  while (!transfer.stopping()) {
    const Work drained = drain_device(context, transfer);
    if (drained.outcome == LaneOutcome::yielded) {
      return LaneOutcome::yielded;
    }
    release_spares(context, transfer);
    const Work written = write_parked(context, transfer);
    if (written.outcome == LaneOutcome::yielded) {
      return LaneOutcome::yielded;
    }
    if (!drained.any && !written.any) {
      break;
    }
  }
  return LaneOutcome::finished;
}

}  // namespace hippogriff
