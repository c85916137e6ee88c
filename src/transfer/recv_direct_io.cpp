// Device to pinbuffer by the copy engine, pinbuffer to drive by O_DIRECT, several requests in
// flight. The edges that are not aligned go through the page cache.
#include "transfer/direct_queue.hpp"
#include "transfer/slot_ring.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint32_t writes_max = DepthController::tried_max;
constexpr std::size_t copies_ahead = 2;

class DirectIoRecv {
 public:
  DirectIoRecv(LaneContext& context, Transfer& transfer)
      : context_(context),
        transfer_(transfer),
        depth_(make_depth_controller(transfer, writes_max)),
        share_(transfer, depth_),
        slots_max_(direct_io_slots(transfer, writes_max + copies_ahead)),
        write_bytes_(request_bytes(transfer, DirectQueue::write_bytes, slots_max_)),
        ring_(context, transfer, slots_max_, context.stream),
        queue_(context, transfer, writes_max) {}

  LaneOutcome run() {
    LaneOutcome outcome = LaneOutcome::finished;
    bool claiming = true;
    while (claiming || queue_.in_flight() > 0 || ring_.copies_in_flight() > 0) {
      if (claiming && transfer_.stopping()) {
        claiming = false;
      } else if (claiming && context_.should_yield()) {
        claiming = false;
        outcome = LaneOutcome::yielded;
      }
      // First the drive: it may have nothing to do.
      submit_writes();
      claiming = claiming && start_copies();
      if (queue_.in_flight() == 0) {
        submit_writes();
        // The next copies run beside these writes, which may be all at once what is waited for.
        claiming = claiming && start_copies();
      }
      collect_writes();
    }
    return outcome;
  }

 private:
  // False when no piece is left.
  bool start_copies() {
    while (ring_.copies_in_flight() < copies_ahead &&
           ring_.copies_in_flight() + queue_.in_flight() < depth_.depth() + copies_ahead) {
      Slot* slot = ring_.try_idle();
      if (slot == nullptr) {
        return !ring_.starved();
      }
      const auto piece = transfer_.work.claim_cold(write_bytes_);
      if (!piece) {
        ring_.make_idle(slot);
        return false;
      }
      slot->piece = *piece;
      ring_.start_to_host(
          slot, transfer_.address_of(piece->offset), slot->memory + queue_.lead_bytes(*piece));
    }
    return true;
  }

  void submit_writes() {
    while (ring_.copies_in_flight() > 0 && queue_.in_flight() < depth_.depth()) {
      Slot* slot =
          queue_.in_flight() == 0 ? ring_.wait_copied("copy to host") : ring_.take_copied();
      if (slot == nullptr) {
        return;
      }
      bool under_way = false;
      if (!transfer_.stopping()) {
        attempt(transfer_, [&] { under_way = write_slot(slot); });
      }
      if (!under_way) {
        ring_.make_idle(slot);
      }
    }
  }

  // Writes the edges at once and queues the aligned middle; false when there is none.
  bool write_slot(Slot* slot) {
    const Range piece = slot->piece;
    const std::uint64_t lead = queue_.lead_bytes(piece);
    std::byte* memory = slot->memory + lead;
    const Range middle = queue_.aligned_part(piece);
    const std::uint64_t head = middle.offset - piece.offset;
    const std::uint64_t tail = piece.end() - middle.end();
    if (head > 0) {
      write_piece(context_, transfer_, {piece.offset, head}, memory);
      transfer_.piece_done(Lane::direct_io, {piece.offset, head});
    }
    if (tail > 0) {
      write_piece(context_, transfer_, {middle.end(), tail}, memory + head + middle.size);
      transfer_.piece_done(Lane::direct_io, {middle.end(), tail});
    }
    if (middle.empty()) {
      return false;
    }
    queue_.write(middle, memory + head, reinterpret_cast<std::uintptr_t>(slot), slot->bytes());
    return true;
  }

  void collect_writes() {
    if (queue_.in_flight() == 0) {
      return;
    }
    const bool copies_wait = ring_.copies_in_flight() > 0 && queue_.in_flight() < depth_.depth();
    const auto patience =
        copies_wait ? std::chrono::microseconds(50) : std::chrono::milliseconds(20);
    for (auto& write : queue_.reap(patience)) {
      auto* slot = reinterpret_cast<Slot*>(write.tag);
      if (write.failure.status != Status::ok) {
        transfer_.fail(std::move(write.failure));
      } else {
        const auto now = Clock::now();
        depth_.completed(write.piece.size, now);
        share_.look(now);
        transfer_.piece_done(Lane::direct_io, write.piece);
      }
      ring_.make_idle(slot);
    }
  }

  LaneContext& context_;
  Transfer& transfer_;
  DepthController depth_;
  DriveShare share_;
  const std::size_t slots_max_;
  const std::uint64_t write_bytes_;
  SlotRing ring_;  // outlives the queue, whose requests use its memory
  DirectQueue queue_;
};

}  // namespace

LaneOutcome recv_direct_io(LaneContext& context, Transfer& transfer) {
  return DirectIoRecv(context, transfer).run();
}

}  // namespace hippogriff
