// Device straight into the pages of a file in shared memory (tmpfs): mapped, registered for
// writing, filled by the copy engine. The extent must exist: the engine allocates the file first.
#include "transfer/lanes.hpp"

#include <sys/mman.h>

namespace hippogriff {

namespace {

constexpr std::uint64_t window_bytes = std::uint64_t{16} << 20;

RegisteredWindow open_window(LaneContext& context, Transfer& transfer, Range piece) {
  const std::uint64_t begin = align_down(piece.offset, WorkMap::cut_bytes);
  const Range pages{begin, align_up(piece.end(), WorkMap::cut_bytes) - begin};
  const auto mapping = transfer.file().map(pages, FileAccess::read_write);
  // Pages that do not exist yet are made here, by as many threads as there are; the driver would
  // make them one after the other. Where it fails, the driver does it, or says why not.
  static_cast<void>(madvise(mapping.data(), mapping.size(), MADV_POPULATE_WRITE));
  return {context.device, transfer.request().file, mapping, HostAccess::read_write};
}

}  // namespace

// What it leaves, because pages cannot be registered, the engine has written.
LaneOutcome recv_mapped(LaneContext& context, Transfer& transfer) {
  if (!may_register(context, transfer, registrar_patience)) {
    return LaneOutcome::finished;
  }
  const auto event = context.device.create_event();
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      return LaneOutcome::yielded;
    }
    const auto piece = transfer.work.claim_warm_window(window_bytes);
    if (!piece) {
      break;
    }
    RegisteredWindow window;
    try {
      window = open_window(context, transfer, *piece);
    } catch (const Error&) {
      transfer.work.give_back(*piece, Warmth::warm);
      break;
    }
    const bool copied = attempt(transfer, [&] {
      static const SliceName name("copy mapped");
      const TraceSlice slice(context.trace, context.copy_track, name, piece->offset, piece->size);
      const std::uint64_t lead = piece->offset - align_down(piece->offset, WorkMap::cut_bytes);
      context.stream.copy_to_host(
          window.data() + lead, transfer.address_of(piece->offset), piece->size, *event);
      await_copy(context, *event, "copy to mapped pages");
      transfer.piece_done(Lane::mapped, *piece);
    });
    if (!copied && !context.stream.drain()) {
      window.abandon();
    }
  }
  return LaneOutcome::finished;
}

}  // namespace hippogriff
