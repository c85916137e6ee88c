// Windows registered one after the other: alone, for users whose CPUs are busy, or beside the
// buffered channels, from the end of the extent while those work from its start.
#include "transfer/mapped_windows.hpp"

namespace hippogriff {

namespace {

// For a transfer that would have to wait for it once: what takes longer is not worth it.
constexpr std::chrono::milliseconds registrar_patience{1000};

LaneOutcome copy_windows(LaneContext& context, Transfer& transfer, bool& mapped) {
  MappedWindows windows(context, transfer);
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping() && mapped) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    windows.retire_copied();
    const auto piece = transfer.work.claim_warm_window(MappedWindows::window_bytes(transfer));
    if (!piece) {
      break;
    }
    if (attempt(transfer, [&] { mapped = windows.copy(*piece); }) && !mapped) {
      transfer.work.give_back(*piece, Warmth::warm);
    }
  }
  while (windows.copying()) {
    windows.retire_oldest();
  }
  return outcome;
}

// Where registering would stop what others do on the device, files are read instead.
bool registers_beside_others(Device& device, std::chrono::milliseconds patience) {
  return !device.info().can.registers_aside || device.registers_aside(patience);
}

}  // namespace

LaneOutcome send_mapped(LaneContext& context, Transfer& transfer) {
  const bool beside_channels = transfer.decision().choice().plan.buffered_channels > 0;
  bool mapped = registers_beside_others(
      context.device, beside_channels ? std::chrono::milliseconds(0) : registrar_patience);
  const LaneOutcome outcome =
      mapped ? copy_windows(context, transfer, mapped) : LaneOutcome::finished;
  // A file whose pages cannot be registered goes another way.
  return mapped || beside_channels ? outcome : send_buffered(context, transfer);
}

}  // namespace hippogriff
