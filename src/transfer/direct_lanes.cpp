// Without staging: cuFile between drive and GPU where that is real, and plain reads and writes
// where the device's memory is the host's own (`host` without a link).
#include "base/error.hpp"
#include "base/page_size.hpp"
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
  if (!transfer.request().device->info().can.host_addressable) {
    return cufile_piece_bytes;
  }
  return piece_bytes(transfer, transfer.decision().choice().plan.direct_channels);
}

// The end of a whole huge page of new memory should be among what a piece can be chosen out of: it
// is counted from the cut below, and what is hashed may begin a block before the page.
std::uint64_t choice_bytes(const Transfer& transfer, std::uint64_t most_bytes) {
  const TransferRequest& request = transfer.request();
  if (!request.new_memory || most_bytes < huge_page_bytes) {
    return 0;
  }
  const std::uint64_t block_bytes =
      request.checksums != nullptr ? request.checksums->block_bytes() : 0;
  return align_up(std::min<std::uint64_t>(block_bytes, huge_page_bytes) + 1, WorkMap::cut_bytes);
}

void read_in_steps(PieceIo& io,
                   Transfer& transfer,
                   const Segment& part,
                   Warmth warmth,
                   const LandingChecksums* hashed) {
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

// The bytes before the first huge page that begins in a part, and of what is hashed before the
// first block that begins there.
std::uint64_t head_bytes(const Segment& part, const LandingChecksums* hashed) {
  const std::uint64_t head = align_up(part.address.value, huge_page_bytes) - part.address.value;
  const bool within = head > 0 && head < part.range.size && hashed != nullptr;
  return head + (within ? hashed->rest_of_block(part.range.offset + head) : 0);
}

// The huge page that begins in a piece is filled before the one that ends there, which whoever has
// the piece before has begun with. Two threads that touch a new page at once both clear it, and one
// has done so for nothing: a tenth of the time of two (1 GiB on an EPYC, in pieces that begin in
// the middle of huge pages, 72 ms in order, 66 so, and 65 in pieces that are huge pages).
void read_in_place(PieceIo& io, Transfer& transfer, const Segment& part, Warmth warmth) {
  const LandingChecksums* hashed =
      warmth == Warmth::warm ? transfer.request().checksums.get() : nullptr;
  // Without O_DIRECT what is cold counts as warm, and the kernel reads ahead of who reads in order.
  const FileFacts& file = transfer.file().facts();
  const bool in_cache = warmth == Warmth::warm && (file.direct || file.in_memory);
  const std::uint64_t head = in_cache ? head_bytes(part, hashed) : 0;
  if (head == 0 || head >= part.range.size) {
    read_in_steps(io, transfer, part, warmth, hashed);
    return;
  }
  const Range tail{part.range.offset + head, part.range.size - head};
  read_in_steps(io, transfer, {tail, part.address + head}, warmth, hashed);
  read_in_steps(io, transfer, {{part.range.offset, head}, part.address}, warmth, hashed);
}

template <typename Move>
LaneOutcome move_pieces(LaneContext& context, Transfer& transfer, Move&& move) {
  while (!transfer.stopping()) {
    if (context.should_yield()) {
      return LaneOutcome::yielded;
    }
    const std::uint64_t bytes = direct_piece_bytes(transfer);
    const auto piece = claim_any(transfer, Warmth::warm, bytes, choice_bytes(transfer, bytes));
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
