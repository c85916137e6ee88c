// Without staging: cuFile between drive and GPU where that is real, and plain reads and writes
// where the device's memory is the host's own (`host` without a link).
#include "base/error.hpp"
#include "checksum/landing_checksums.hpp"
#include "transfer/cufile.hpp"
#include "transfer/piece_io.hpp"

#include <algorithm>

namespace hippogriff {

namespace {

constexpr std::uint64_t cufile_piece_bytes = std::uint64_t{16} << 20;
// At most so much of the page cache is read before it is hashed: it is in the core's own cache
// then, and memory, which many cores read and write at its limit, is not read again.
constexpr std::uint64_t hashed_bytes_max = std::uint64_t{256} << 10;

std::byte* host_pointer(DeviceAddress address) {
  return reinterpret_cast<std::byte*>(address.value);  // NOLINT(performance-no-int-to-ptr)
}

std::uint64_t direct_piece_bytes(const Transfer& transfer) {
  return transfer.request().device->info().can.host_addressable
             ? piece_bytes(transfer, transfer.decision().choice().plan.direct_channels)
             : cufile_piece_bytes;
}

void read_in_place(PieceIo& io, Transfer& transfer, const Segment& part, Warmth warmth) {
  const LandingChecksums* hashed =
      warmth == Warmth::warm ? transfer.request().checksums.get() : nullptr;
  std::byte* memory = host_pointer(part.address);
  Range rest = part.range;
  while (!rest.empty()) {
    const bool cut = hashed != nullptr && rest.size > hashed_bytes_max;
    const Range step{rest.offset,
                     cut ? hashed->step_bytes(rest.offset, hashed_bytes_max) : rest.size};
    io.read(step, memory, warmth);
    transfer.landed(step);
    memory += step.size;
    rest = {step.end(), rest.size - step.size};
  }
}

template <typename Move>
LaneOutcome move_pieces(LaneContext& context, Transfer& transfer, Move&& move) {
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      return LaneOutcome::yielded;
    }
    const auto piece = claim_any(transfer, Warmth::warm, direct_piece_bytes(transfer));
    if (!piece) {
      break;
    }
    attempt(transfer, [&] {
      move(piece->range, piece->warmth);
      transfer.count_cold(piece->warmth == Warmth::cold ? piece->range.size : 0);
      transfer.piece_done(Lane::direct, piece->range);
    });
  }
  return LaneOutcome::finished;
}

}  // namespace

LaneOutcome send_direct(LaneContext& context, Transfer& transfer) {
  if (context.device.info().can.host_addressable) {
    PieceIo io(context, transfer);
    return move_pieces(context, transfer, [&](Range piece, Warmth warmth) {
      transfer.for_each_part(
          piece, [&](const Segment& part) { read_in_place(io, transfer, part, warmth); });
    });
  }
  HIPPO_ASSERT(transfer.request().checksums == nullptr);  // they are of host memory
  CuFile file(transfer.file());
  return move_pieces(context, transfer, [&](Range piece, Warmth) {
    static const SliceName name("cuFile read");
    const TraceSlice slice(context.trace, context.cpu_track, name, piece.offset, piece.size);
    if (transfer.request().destinations.empty()) {
      file.read(piece, transfer.address(), piece.offset - transfer.request().extent.offset);
      return;
    }
    transfer.for_each_part(piece,
                           [&](const Segment& part) { file.read(part.range, part.address, 0); });
  });
}

LaneOutcome recv_direct(LaneContext& context, Transfer& transfer) {
  if (context.device.info().can.host_addressable) {
    PieceIo io(context, transfer);
    return move_pieces(context, transfer, [&](Range piece, Warmth) {
      io.write(piece, host_pointer(transfer.address_of(piece.offset)));
    });
  }
  CuFile file(transfer.file());
  return move_pieces(context, transfer, [&](Range piece, Warmth) {
    static const SliceName name("cuFile write");
    const TraceSlice slice(context.trace, context.cpu_track, name, piece.offset, piece.size);
    file.write(piece, transfer.address(), piece.offset - transfer.request().extent.offset);
  });
}

}  // namespace hippogriff
