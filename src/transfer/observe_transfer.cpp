// What a transfer that has ended tells the calibration, lane by lane.
#include "transfer/outlook.hpp"
#include "transfer/runtime.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace hippogriff {
namespace {

// From the first to the last that the lanes of the page cache did. What came before, such as
// waiting for a stream or for memory, says nothing of them.
double cache_lanes_seconds(const Transfer& transfer) {
  auto first = Clock::time_point::max();
  auto last = Clock::time_point::min();
  for (const Lane lane : {Lane::buffered, Lane::mapped}) {
    const LaneTally tally = transfer.tally(lane);
    if (tally.bytes > 0) {
      first = std::min(first, tally.first);
      last = std::max(last, tally.last);
    }
  }
  return last > first ? seconds_between(first, last) : 0;
}

// The first batch of a transfer always finds the link idle; of few nothing can be said.
double link_idle_share(const CopyCounts& before, const CopyCounts& after) {
  constexpr std::uint64_t batches_min = 16;
  const std::uint64_t batches = after.batches - before.batches;
  const std::uint64_t late = after.late - before.late;
  if (batches < batches_min || late == 0) {
    return -1;
  }
  return static_cast<double>(late - 1) / static_cast<double>(batches - 1);
}

// Whether parts of the file have no blocks: reading those takes no drive.
bool has_holes(const File& file) {
  constexpr std::uint64_t block_bytes = 512;
  struct stat facts{};
  return ::fstat(file.fd(), &facts) == 0 && S_ISREG(facts.st_mode) &&
         static_cast<std::uint64_t>(facts.st_blocks) * block_bytes <
             static_cast<std::uint64_t>(facts.st_size);
}

// What the direct lane moved past the page cache, as PieceIo does where offsets and memory allow.
std::uint64_t drive_bytes(const Transfer& transfer, bool host_addressable) {
  const std::uint64_t bytes = transfer.tally(Lane::direct).bytes;
  const TransferRequest& request = transfer.request();
  if (!host_addressable) {
    return bytes;
  }
  const bool aligned =
      request.destinations.empty() &&
      transfer.address().value % WorkMap::cut_bytes == request.extent.offset % WorkMap::cut_bytes;
  if (!transfer.file().facts().direct || !aligned) {
    return 0;
  }
  return request.direction == Direction::recv ? bytes : std::min(bytes, transfer.cold_bytes());
}

}  // namespace

void Runtime::observe(const Transfer& transfer, const DeviceState& state) {
  if (transfer.failed()) {
    return;
  }
  const FileFacts& file = transfer.file().facts();
  const std::uint64_t by_cache =
      transfer.tally(Lane::buffered).bytes + transfer.tally(Lane::mapped).bytes;
  const std::uint64_t size = transfer.request().extent.size;
  const double seconds = cache_lanes_seconds(transfer);
  // What hashes on the way looks slower than the drive or the page cache is.
  const bool alone = ran_alone(transfer, state) && transfer.request().checksums == nullptr;
  // What windows that are mapped beside send is not counted: the link may be full with it.
  const bool mapped = transfer.tally(Lane::mapped).bytes > 0;
  const double idle_share = link_idle_share(transfer.copies_before, state.engine->copies());
  const bool sends = transfer.request().direction == Direction::send;
  for (std::size_t index = 0; index < lane_count; ++index) {
    const auto lane = static_cast<Lane>(index);
    const LaneTally tally = transfer.tally(lane);
    // What has been read before the transfer looks like the page cache's, and is faster.
    const bool from_memory = transfer.request().read_ahead != nullptr && lane == Lane::buffered;
    if (tally.bytes == 0 || lane == Lane::parked || from_memory ||
        (lane == Lane::direct && sends && has_holes(transfer.file()))) {
      continue;
    }
    calibration_.observe(
        link_key(state.device->info()),
        drive_key(file),
        {.lane = lane,
         .direction = transfer.request().direction,
         .in_memory = file.in_memory,
         .bytes = tally.bytes,
         .seconds = seconds_between(tally.first, tally.last),
         .cpu_seconds = tally.cpu_seconds,
         .channels = std::max(1U, tally.channels),
         .alone = alone,
         .transfer_bytes_per_second =
             by_cache == size && seconds > 0 ? static_cast<double>(size) / seconds : 0,
         .drive_bytes = lane == Lane::direct
                            ? drive_bytes(transfer, state.device->info().can.host_addressable)
                            : 0,
         .link_idle_share = mapped ? -1 : idle_share});
  }
}

}  // namespace hippogriff
