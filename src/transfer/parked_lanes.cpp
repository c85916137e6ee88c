// Through host memory, decoupled from the device. Sends read on while the device has no room yet
// (Hippogriff III.B); receives leave the device before the disk has them (Gullfoss 4.2).
#include "transfer/piece_io.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace hippogriff {

namespace {

constexpr std::chrono::milliseconds step_aside{2};

// A piece of parking that goes back unless it is handed on. Parked data has half of the transfer's
// host memory at most, so that the lanes beside it have slots, and counts to the transfer's end:
// the parking keeps pieces.
class ParkingPlace {
 public:
  ParkingPlace(Parking& parking, HostBudget& budget) : parking_(parking), budget_(budget) {
    if (!budget_.take_of_half(Parking::piece_bytes)) {
      return;
    }
    memory_ = parking_.acquire();
    if (memory_ == nullptr) {
      budget_.give_back(Parking::piece_bytes);
    }
  }

  ~ParkingPlace() {
    if (memory_ != nullptr) {
      parking_.release(memory_, in_use_ ? Parking::Reuse::no : Parking::Reuse::yes);
      budget_.give_back(Parking::piece_bytes);
    }
  }

  ParkingPlace(const ParkingPlace&) = delete;
  ParkingPlace& operator=(const ParkingPlace&) = delete;

  [[nodiscard]] std::byte* get() const { return memory_; }

  void set_in_use(bool in_use) { in_use_ = in_use; }

  std::byte* hand_on() { return std::exchange(memory_, nullptr); }

 private:
  Parking& parking_;
  HostBudget& budget_;
  std::byte* memory_ = nullptr;
  bool in_use_ = false;  // by the device
};

// What is read ahead of its memory must not slow down what others have memory for: they would keep
// that the longer, and a drive that many read from at once gives less. Not where parking was asked
// for by name.
bool steps_aside(const Transfer& transfer) {
  return transfer.request().route != Route::parked && transfer.others_need_drive != nullptr &&
         transfer.others_need_drive();
}

bool all_else_is_parked(const Transfer& transfer) {
  return transfer.parked_bytes() + transfer.bytes_done() + transfer.work.held_bytes() ==
         transfer.request().extent.size;
}

void write_drained(LaneContext& context, Transfer& transfer) {
  PieceIo io(context, transfer);
  while (auto piece = transfer.unpark()) {
    if (!transfer.stopping()) {
      attempt(transfer, [&] {
        const Range range{piece->offset, piece->size_bytes};
        io.write(range, piece->memory);
        transfer.piece_done(Lane::parked, range);
      });
    }
    context.parking.release(piece->memory);
  }
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
    const auto piece = claim_any(transfer, Warmth::cold, Parking::piece_bytes);
    if (!piece) {
      break;
    }
    attempt(transfer, [&] {
      io.read(piece->range, place.get(), piece->warmth);
      transfer.count_cold(piece->warmth == Warmth::cold ? piece->range.size : 0);
      transfer.park({place.hand_on(), piece->range.offset, piece->range.size});
    });
  }
  return LaneOutcome::finished;
}

LaneOutcome send_unpark(LaneContext& context, Transfer& transfer) {
  const auto event = context.device.create_event();
  while (auto piece = transfer.unpark()) {
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

// Drains the device first, then writes what was drained; what does not fit into the budget goes
// through the usual lanes.
LaneOutcome recv_parked(LaneContext& context, Transfer& transfer) {
  const auto event = context.device.create_event();
  while (!transfer.stopping()) {
    ParkingPlace place(context.parking, transfer.host_memory);
    if (place.get() == nullptr) {
      break;
    }
    auto piece = claim_any(transfer, Warmth::cold, Parking::piece_bytes);
    // What was held back leaves the device with the rest, and is written after it.
    const bool last = !piece && all_else_is_parked(transfer) && transfer.work.release_held();
    if (last) {
      piece = claim_any(transfer, Warmth::warm, Parking::piece_bytes);
    }
    if (!piece) {
      break;
    }
    const bool drained = attempt(transfer, [&] {
      const Range range = piece->range;
      static const SliceName name("drain");
      const TraceSlice slice(context.trace, context.copy_track, name, range.offset, range.size);
      place.set_in_use(true);
      context.stream.copy_to_host(
          place.get(), transfer.address_of(range.offset), range.size, *event);
      await_copy(context, *event, "drain the device");
      place.set_in_use(false);
      const ParkedPiece parked{place.hand_on(), range.offset, range.size};
      if (last) {
        transfer.park_to_the_end(parked);
      } else {
        transfer.park(parked);
      }
      transfer.drained(range.size);
    });
    if (!drained && context.stream.drain()) {
      place.set_in_use(false);
    }
  }
  write_drained(context, transfer);
  return LaneOutcome::finished;
}

}  // namespace hippogriff
