// Windows registered one after the other: alone, for users whose CPUs are busy, or beside the
// buffered channels, from the end of the extent while those work from its start.
#include "transfer/mapped_windows.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

// How much a window beside channels may hold, so that the transfer does not wait for the last one:
// half of what this lane would get done of the rest, by its share up to now.
class Pace {
 public:
  explicit Pace(const Transfer& transfer)
      : transfer_(transfer), unclaimed_at_begin_(transfer.work.unclaimed_bytes()) {}

  void claimed(std::uint64_t bytes) { own_bytes_ += bytes; }

  // Bytes; 0 when the channels are through with the rest sooner than any window would be.
  [[nodiscard]] std::uint64_t window_bytes_max() const {
    const std::uint64_t unclaimed = transfer_.work.unclaimed_bytes();
    const std::uint64_t all_bytes = unclaimed_at_begin_ - std::min(unclaimed_at_begin_, unclaimed);
    if (own_bytes_ == 0 || all_bytes == 0) {
      return unclaimed;
    }
    const double share =
        std::min(1.0, static_cast<double>(own_bytes_) / static_cast<double>(all_bytes));
    const auto most = static_cast<std::uint64_t>(static_cast<double>(unclaimed) * share / 2);
    return most < worthwhile_bytes ? 0 : most;
  }

 private:
  static constexpr std::uint64_t worthwhile_bytes = std::uint64_t{2} << 20;

  const Transfer& transfer_;
  const std::uint64_t unclaimed_at_begin_;
  std::uint64_t own_bytes_ = 0;
};

LaneOutcome copy_windows(LaneContext& context, Transfer& transfer, bool beside_channels) {
  MappedWindows windows(context, transfer);
  Pace pace(transfer);
  LaneOutcome outcome = LaneOutcome::finished;
  bool mapped = true;
  while (!transfer.stopping() && mapped) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    windows.retire_copied();
    const std::uint64_t most =
        beside_channels ? pace.window_bytes_max() : transfer.work.unclaimed_bytes();
    if (beside_channels && most == 0) {
      break;
    }
    const auto piece = transfer.work.claim_warm_window(MappedWindows::window_bytes(transfer, most));
    if (!piece) {
      break;
    }
    pace.claimed(piece->size);
    if (attempt(transfer, [&] { mapped = windows.copy(*piece); }) && !mapped) {
      transfer.work.give_back(*piece, Warmth::warm);
    }
  }
  while (windows.copying()) {
    windows.retire_oldest();
  }
  return outcome;
}

}  // namespace

// What it leaves, because pages cannot be registered, is read: by the channels beside it, or by
// those that the engine sends when this lane has ended.
LaneOutcome send_mapped(LaneContext& context, Transfer& transfer) {
  const bool beside_channels = transfer.decision().choice().plan.buffered_channels > 0;
  const auto patience = beside_channels ? std::chrono::milliseconds(0) : registrar_patience;
  return may_register(context, transfer, patience)
             ? copy_windows(context, transfer, beside_channels)
             : LaneOutcome::finished;
}

}  // namespace hippogriff
