// Device straight into the pages of a file in shared memory (tmpfs): mapped, registered for
// writing, filled by the copy engine. The extent must exist: the engine allocates the file first.
#include "transfer/lanes.hpp"

#include <sys/mman.h>

namespace hippogriff {

namespace {

constexpr std::uint64_t window_bytes = std::uint64_t{16} << 20;

// Maps and registers the pages of a piece for as long as it lives.
class WritableWindow {
 public:
  WritableWindow(LaneContext& context, Transfer& transfer, Range piece)
      : device_(context.device), file_(transfer.file()), registering_(transfer.registering) {
    const std::uint64_t begin = align_down(piece.offset, WorkMap::cut_bytes);
    const Range pages{begin, align_up(piece.end(), WorkMap::cut_bytes) - begin};
    mapping_ = file_.map(pages, FileAccess::read_write);
    lead_ = piece.offset - begin;
    // Pages that do not exist yet are made here, by as many threads as there are; the driver would
    // make them one after the other. Where it fails, the driver does it, or says why not.
    static_cast<void>(madvise(mapping_.data(), mapping_.size(), MADV_POPULATE_WRITE));
    try {
      const std::lock_guard lock(registering_);
      device_.register_host(mapping_.data(), mapping_.size(), HostAccess::read_write);
    } catch (...) {
      file_.unmap(mapping_);
      throw;
    }
  }

  ~WritableWindow() {
    if (abandoned_) {
      return;
    }
    {
      const std::lock_guard lock(registering_);
      device_.unregister_host(mapping_.data());
    }
    file_.unmap(mapping_);
  }

  // The device may still write to the pages: they stay mapped and registered.
  void abandon() { abandoned_ = true; }

  WritableWindow(const WritableWindow&) = delete;
  WritableWindow& operator=(const WritableWindow&) = delete;

  [[nodiscard]] std::byte* data() const { return mapping_.data() + lead_; }

 private:
  Device& device_;
  File& file_;
  std::mutex& registering_;
  std::span<std::byte> mapping_;
  std::uint64_t lead_ = 0;
  bool abandoned_ = false;
};

}  // namespace

LaneOutcome recv_mapped(LaneContext& context, Transfer& transfer) {
  const auto event = context.device.create_event();
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      return LaneOutcome::yielded;
    }
    const auto piece = transfer.work.claim_warm_window(window_bytes);
    if (!piece) {
      break;
    }
    std::optional<WritableWindow> window;
    try {
      window.emplace(context, transfer, *piece);
    } catch (const Error&) {
      transfer.work.give_back(*piece, Warmth::warm);
      return recv_buffered(context, transfer);
    }
    const bool copied = attempt(transfer, [&] {
      static const SliceName name("copy mapped");
      const TraceSlice slice(context.trace, context.copy_track, name, piece->offset, piece->size);
      context.stream.copy_to_host(window->data(), transfer.address_of(piece->offset), piece->size);
      context.stream.record(*event);
      await_copy(context, *event, "copy to mapped pages");
      transfer.piece_done(Lane::mapped, *piece);
    });
    if (!copied && !drain(context.stream)) {
      window->abandon();
    }
  }
  return LaneOutcome::finished;
}

}  // namespace hippogriff
