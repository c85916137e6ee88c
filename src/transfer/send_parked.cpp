// Through host memory, decoupled from the device: sends read on while the device has no room yet
// (Hippogriff III.B).
#include "transfer/parking_place.hpp"
#include "transfer/piece_io.hpp"

#include <chrono>
#include <thread>

namespace hippogriff {

namespace {

constexpr std::chrono::milliseconds step_aside{2};

// What is read ahead of its memory must not slow down what others have memory for: they would keep
// that the longer, and a drive that many read from at once gives less. Not where parking was asked
// for by name.
bool steps_aside(const Transfer& transfer) {
  return transfer.request().route != Route::parked && transfer.others_need_drive != nullptr &&
         transfer.others_need_drive();
}

// What has been read before waits where it is.
std::optional<ClaimedPiece> claim_to_park(Transfer& transfer) {
  if (transfer.request().read_ahead == nullptr) {
    return claim_any(transfer, Warmth::cold, Parking::piece_bytes);
  }
  const auto piece = transfer.work.claim_cold(Parking::piece_bytes);
  return piece ? std::optional(ClaimedPiece{*piece, Warmth::cold}) : std::nullopt;
}

}  // namespace

LaneOutcome send_parked(LaneContext& context, Transfer& transfer) {
  PieceIo io(context, transfer);
  while (!transfer.stopping() && !transfer.gate_open) {
    if (context.should_yield()) {
      return LaneOutcome::yielded;
    }
    if (steps_aside(transfer)) {
      std::this_thread::sleep_for(step_aside);
      continue;
    }
    ParkingPlace place(context.parking, transfer.host_memory);
    if (place.get() == nullptr) {
      break;  // the budget is used up: the rest is read when the device is ready
    }
    const auto piece = claim_to_park(transfer);
    if (!piece) {
      break;
    }
    attempt(transfer, [&] {
      io.read(piece->range, place.get(), piece->warmth);
      transfer.count_cold(piece->warmth == Warmth::cold ? piece->range.size : 0);
      transfer.parked.add(
          {.memory = place.get(), .offset = piece->range.offset, .size_bytes = piece->range.size});
      place.hand_on();
    });
  }
  return LaneOutcome::finished;
}

LaneOutcome send_unpark(LaneContext& context, Transfer& transfer) {
  const auto event = context.device.create_event();
  while (auto piece = transfer.parked.take_newest()) {
    auto reuse = Parking::Reuse::yes;
    if (!transfer.stopping()) {
      const bool copied = attempt(transfer, [&] {
        static const SliceName name("copy parked");
        const TraceSlice slice(
            context.trace, context.copy_track, name, piece->offset, piece->size_bytes);
        reuse = Parking::Reuse::no;
        const Range range{piece->offset, piece->size_bytes};
        context.stream.copy_to_device(transfer.copies_of(range, piece->memory), *event);
        await_copy(context, *event, "copy parked data to device");
        reuse = Parking::Reuse::yes;
        transfer.piece_done(Lane::parked, range);
      });
      if (!copied && context.stream.drain()) {
        reuse = Parking::Reuse::yes;
      }
    }
    context.parking.release(piece->memory, reuse);
  }
  return LaneOutcome::finished;
}

}  // namespace hippogriff
