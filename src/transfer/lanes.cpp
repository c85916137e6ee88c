// What lanes share, and the one switch over them.
#include "transfer/lanes.hpp"

#include "transfer/slot_ring.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

namespace hippogriff {

namespace {

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

LaneOutcome run_send(LaneContext& context, Transfer& transfer, Lane lane) {
  switch (lane) {
    case Lane::direct:
      return send_direct(context, transfer);
    case Lane::mapped:
      return send_mapped(context, transfer);
    case Lane::buffered:
      return send_buffered(context, transfer);
    case Lane::direct_io:
      return send_direct_io(context, transfer);
    case Lane::parked:
      return transfer.gate_open ? send_unpark(context, transfer) : send_parked(context, transfer);
  }
  assertion_failed("a lane of the list", __FILE__, __LINE__);
}

LaneOutcome run_recv(LaneContext& context, Transfer& transfer, Lane lane) {
  switch (lane) {
    case Lane::direct:
      return recv_direct(context, transfer);
    case Lane::mapped:
      return recv_mapped(context, transfer);
    case Lane::buffered:
      return recv_buffered(context, transfer);
    case Lane::direct_io:
      return recv_direct_io(context, transfer);
    case Lane::parked:
      return recv_parked(context, transfer);
  }
  assertion_failed("a lane of the list", __FILE__, __LINE__);
}

}  // namespace

LaneOutcome run_lane(LaneContext& context, Transfer& transfer, Lane lane) noexcept {
  const auto begin = Clock::now();
  const double cpu_begin = thread_cpu_seconds();
  LaneOutcome outcome = LaneOutcome::finished;
  try {
    outcome = transfer.request().direction == Direction::send ? run_send(context, transfer, lane)
                                                              : run_recv(context, transfer, lane);
  } catch (...) {
    transfer.fail(current_failure());
  }
  transfer.tally_task(lane, begin, thread_cpu_seconds() - cpu_begin);
  return outcome;
}

bool stays_in_caches(const Transfer& transfer) {
  constexpr std::uint64_t all_caches_bytes = std::uint64_t{32} << 20;
  const TransferRequest& request = transfer.request();
  return request.direction == Direction::send && request.extent.size <= all_caches_bytes &&
         !request.device->info().can.host_addressable;
}

bool is_short(const Transfer& transfer) {
  constexpr std::uint64_t short_bytes_max = std::uint64_t{128} << 20;
  const TransferRequest& request = transfer.request();
  return request.extent.size <= short_bytes_max && !request.device->info().can.host_addressable;
}

std::uint64_t piece_bytes(const Transfer& transfer, std::uint32_t channels) {
  const std::uint64_t usual_bytes = std::uint64_t{stays_in_caches(transfer) ? 256U : 512U} << 10U;
  const std::uint64_t smallest_bytes = std::min(usual_bytes, transfer.piece_bytes_max);
  const std::uint64_t unclaimed = transfer.work.unclaimed_bytes();
  const std::uint64_t claimed = transfer.request().extent.size - unclaimed;
  // New memory comes in huge pages, and where one ends pieces do: they are smaller at the end
  // alone.
  const bool by_pages = transfer.request().new_memory;
  const std::uint64_t shares = (by_pages ? 1 : 2) * std::uint64_t{std::max(channels, 1U)};
  // Small at first, so that the link need not wait long for the first copy.
  const std::uint64_t ramp =
      by_pages ? transfer.piece_bytes_max : smallest_bytes + claimed / shares;
  return std::clamp<std::uint64_t>(align_up(std::min(unclaimed / shares, ramp), WorkMap::cut_bytes),
                                   smallest_bytes,
                                   transfer.piece_bytes_max);
}

std::optional<ClaimedPiece> claim_any(Transfer& transfer,
                                      Warmth first,
                                      std::uint64_t most_bytes,
                                      std::uint64_t choice_bytes) {
  const Warmth second = first == Warmth::warm ? Warmth::cold : Warmth::warm;
  for (const Warmth warmth : {first, second}) {
    const auto piece = warmth == Warmth::warm ? transfer.work.claim_warm(most_bytes + choice_bytes)
                                              : transfer.work.claim_cold(most_bytes);
    if (piece) {
      return ClaimedPiece{*piece, warmth};
    }
  }
  return std::nullopt;
}

void throw_short_file(Transfer& transfer, std::uint64_t offset) {
  const std::uint64_t size_now = transfer.file().size_now();
  const Range extent = transfer.request().extent;
  throw Error({.status = Status::short_file,
               .operation = "read",
               .object = transfer.file().facts().path,
               .offset = std::clamp(size_now, extent.offset, std::max(extent.offset, offset)),
               .detail = "the file ends here now: it has " + std::to_string(size_now) +
                         " bytes; was it truncated meanwhile?"});
}

std::uint64_t read_cached_piece(Transfer& transfer, Range piece, std::byte* memory) {
  std::uint64_t got = 0;
  while (got < piece.size) {
    const auto count =
        transfer.file().read_cached({memory + got, piece.size - got}, piece.offset + got);
    if (!count) {
      break;
    }
    if (*count == 0) {
      throw_short_file(transfer, piece.offset + got);
    }
    got += *count;
  }
  return got;
}

void read_piece(LaneContext& context, Transfer& transfer, Range piece, std::byte* memory) {
  static const SliceName name("read");
  const TraceSlice slice(context.trace, context.cpu_track, name, piece.offset, piece.size);
  std::uint64_t got = 0;
  while (got < piece.size) {
    const std::size_t count =
        transfer.file().read({memory + got, piece.size - got}, piece.offset + got);
    if (count == 0) {
      throw_short_file(transfer, piece.offset + got);
    }
    got += count;
  }
}

void write_piece(LaneContext& context, Transfer& transfer, Range piece, const std::byte* memory) {
  static const SliceName name("write");
  const TraceSlice slice(context.trace, context.cpu_track, name, piece.offset, piece.size);
  std::uint64_t put = 0;
  while (put < piece.size) {
    const std::size_t count =
        transfer.file().write({memory + put, piece.size - put}, piece.offset + put);
    if (count == 0) {
      throw_io("write", transfer.file().facts().path, piece.offset + put, EIO);
    }
    put += count;
  }
}

bool may_register(LaneContext& context,
                  const Transfer& transfer,
                  std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds step{20};
  if (!context.device.info().can.registers_aside) {
    return true;
  }
  const auto end = Clock::now() + patience;
  while (!context.device.registers_aside(std::min(step, patience))) {
    if (transfer.stopping() || Clock::now() >= end) {
      return false;
    }
  }
  return true;
}

void await_copy(LaneContext& context, Event& event, const char* operation, const Polling& polling) {
  if (!wait_for(event, device_timeout, polling)) {
    throw Error({.status = Status::device_error,
                 .operation = operation,
                 .object = context.device.info().name,
                 .detail = "the copy did not complete in 60 s; the device may hang"});
  }
}

}  // namespace hippogriff
