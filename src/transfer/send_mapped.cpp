// Windows of a file mapping, registered with the device, copied by its copy engine: no CPU copy.
// Works from the end of the extent while the buffered channels work from its start.
#include <algorithm>
#include <deque>
#include <memory>

#include "transfer/lanes.hpp"

namespace hippogriff {

namespace {

constexpr std::uint64_t window_bytes_max = std::uint64_t{32} << 20;
constexpr std::uint64_t window_bytes_min = std::uint64_t{4} << 20;
constexpr std::size_t windows_in_flight = 3;

// A mapped and registered window whose copy is under way.
struct Window {
  std::span<std::byte> mapping;
  std::unique_ptr<Event> copied;
  Range piece;
  Clock::time_point copy_begin;
};

class MappedLane {
 public:
  MappedLane(LaneContext& context, Transfer& transfer) : context_(context), transfer_(transfer) {}

  ~MappedLane() {
    while (!windows_.empty()) {
      bool complete = true;
      try {
        complete = wait_for(*windows_.front().copied, device_timeout);
      } catch (const Error&) {
      }
      if (complete) {
        close(windows_.front());
      }
      windows_.pop_front();
    }
  }

  MappedLane(const MappedLane&) = delete;
  MappedLane& operator=(const MappedLane&) = delete;

  // False when this file cannot be mapped and registered here: the piece was given back.
  bool copy(Range piece) {
    Window window;
    if (!open(piece, window)) {
      transfer_.work.give_back(piece, Warmth::warm);
      return false;
    }
    window.piece = piece;
    window.copy_begin = Clock::now();
    const std::uint64_t lead = piece.offset - align_down(piece.offset, WorkMap::cut_bytes);
    windows_.push_back(std::move(window));
    context_.stream.copy_to_device(transfer_.address_of(piece.offset),
                                   windows_.back().mapping.data() + lead, piece.size);
    context_.stream.record(*windows_.back().copied);
    return true;
  }

  void retire_oldest() {
    Window& window = windows_.front();
    await_copy(context_, *window.copied, "copy mapped pages to device");
    if (context_.trace != nullptr) {
      context_.trace->slice(context_.copy_track, "copy mapped", window.copy_begin, Clock::now(),
                            window.piece.offset, window.piece.size);
    }
    close(window);
    transfer_.piece_done(Lane::mapped, window.piece);
    windows_.pop_front();
  }

  [[nodiscard]] std::size_t in_flight() const { return windows_.size(); }

 private:
  bool open(Range piece, Window& window) {
    const TraceSlice slice(context_.trace, context_.cpu_track, "map and register", piece.offset,
                           piece.size);
    const std::uint64_t begin = align_down(piece.offset, WorkMap::cut_bytes);
    const Range pages{begin, align_up(piece.end(), WorkMap::cut_bytes) - begin};
    if (transfer_.file().size_now() < piece.end()) {
      throw_short_file(transfer_, transfer_.file().size_now());
    }
    window.copied = context_.device.create_event();
    try {
      window.mapping = transfer_.file().map(pages, FileAccess::read);
    } catch (const Error&) {
      return false;
    }
    try {
      context_.device.register_host(window.mapping.data(), window.mapping.size(),
                                    HostAccess::read_only);
    } catch (const Error&) {
      transfer_.file().unmap(window.mapping);
      return false;
    }
    return true;
  }

  void close(Window& window) {
    context_.device.unregister_host(window.mapping.data());
    transfer_.file().unmap(window.mapping);
  }

  LaneContext& context_;
  Transfer& transfer_;
  std::deque<Window> windows_;
};

// Whole windows, smaller towards the end so that all lanes finish together.
std::uint64_t window_bytes(const Transfer& transfer) {
  const std::uint64_t left = transfer.request().extent.size - transfer.bytes_done();
  return std::clamp(align_down(left / 8, window_bytes_min), window_bytes_min, window_bytes_max);
}

// The rest of the extent must go another way: the same thread reads it instead.
LaneOutcome fall_back(LaneContext& context, Transfer& transfer) {
  return send_buffered(context, transfer);
}

}  // namespace

LaneOutcome send_mapped(LaneContext& context, Transfer& transfer) {
  MappedLane lane(context, transfer);
  LaneOutcome outcome = LaneOutcome::finished;
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      outcome = LaneOutcome::yielded;
      break;
    }
    if (lane.in_flight() >= windows_in_flight) {
      lane.retire_oldest();
      continue;
    }
    const auto piece = transfer.work.claim_warm_window(window_bytes(transfer));
    if (!piece) {
      break;
    }
    bool mapped = true;
    if (attempt(transfer, [&] { mapped = lane.copy(*piece); }) && !mapped) {
      return fall_back(context, transfer);
    }
  }
  while (lane.in_flight() > 0) {
    lane.retire_oldest();
  }
  return outcome;
}

}  // namespace hippogriff
