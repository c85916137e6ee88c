// Windows registered one after the other: alone, for users whose CPUs are busy, or beside the
// buffered channels, from the end of the extent while those work from its start.
#include "transfer/mapped_windows.hpp"

namespace hippogriff {

namespace {

LaneOutcome copy_windows(LaneContext& context, Transfer& transfer, bool& mapped) {
  MappedWindows windows(context, transfer);
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping() && mapped) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    if (windows.in_flight() >= MappedWindows::in_flight_max) {
      windows.retire_oldest();
      continue;
    }
    const auto piece = transfer.work.claim_warm_window(MappedWindows::window_bytes(transfer));
    if (!piece) {
      break;
    }
    if (attempt(transfer, [&] { mapped = windows.copy(*piece); }) && !mapped) {
      transfer.work.give_back(*piece, Warmth::warm);
    }
  }
  while (windows.in_flight() > 0) {
    windows.retire_oldest();
  }
  return outcome;
}

// Through the device's side door, so that registering does not hold up the channels' copies.
// Without one the channels do it all.
LaneOutcome copy_windows_aside(LaneContext& context, Transfer& transfer) {
  Device* door = context.device.side_door();
  if (door == nullptr) {
    return LaneOutcome::finished;
  }
  const DeviceScope scope(*door);
  if (context.aside == nullptr) {
    context.aside = door->create_stream();
  }
  LaneContext aside{.device = *door,
                    .pinbuffer = context.pinbuffer,
                    .parking = context.parking,
                    .storage = context.storage,
                    .stream = *context.aside,
                    .trace = context.trace,
                    .cpu_track = context.cpu_track,
                    .copy_track = context.copy_track,
                    .should_yield = context.should_yield,
                    .aside = nullptr};
  bool mapped = true;
  return copy_windows(aside, transfer, mapped);
}

}  // namespace

LaneOutcome send_mapped(LaneContext& context, Transfer& transfer) {
  if (transfer.decision().choice().plan.buffered_channels > 0) {
    return copy_windows_aside(context, transfer);
  }
  bool mapped = true;
  const LaneOutcome outcome = copy_windows(context, transfer, mapped);
  // A file whose pages cannot be registered goes another way.
  return mapped ? outcome : send_buffered(context, transfer);
}

}  // namespace hippogriff
