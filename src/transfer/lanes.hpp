// The lanes: one function each, run by an engine thread for one transfer until no piece is left for
// it, or until others wait and its time slice is over. To add a lane: Lane in route.hpp, a function
// here, a line in run_lane, a field in Plan.
#pragma once

#include "device/device.hpp"
#include "storage/storage.hpp"
#include "transfer/copied_windows.hpp"
#include "transfer/copy_stream.hpp"
#include "transfer/device_wait.hpp"
#include "transfer/parking.hpp"
#include "transfer/pinbuffer.hpp"
#include "transfer/transfer.hpp"

#include <functional>
#include <memory>

namespace hippogriff {

// What a lane may use. One per engine thread; not shared.
struct LaneContext {
  Device& device;
  Pinbuffer& pinbuffer;
  Parking& parking;
  Storage& storage;
  CopyStream& stream;     // this thread's
  CopyStream& to_device;  // everybody's
  Trace* trace = nullptr;
  std::uint32_t cpu_track = 0;   // what the thread does
  std::uint32_t copy_track = 0;  // what its stream does
  std::function<bool()> should_yield;
  CopiedWindows copied_windows;  // of transfers that ended
};

enum class LaneOutcome : std::uint8_t { finished, yielded };

// Never throws: what goes wrong fails the transfer.
LaneOutcome run_lane(LaneContext& context, Transfer& transfer, Lane lane) noexcept;

// --- one per file ---
LaneOutcome send_buffered(LaneContext& context, Transfer& transfer);
LaneOutcome send_direct_io(LaneContext& context, Transfer& transfer);
LaneOutcome send_mapped(LaneContext& context, Transfer& transfer);
LaneOutcome send_parked(LaneContext& context, Transfer& transfer);  // into host memory
LaneOutcome send_unpark(LaneContext& context, Transfer& transfer);  // and on to the device
LaneOutcome send_direct(LaneContext& context, Transfer& transfer);
LaneOutcome recv_buffered(LaneContext& context, Transfer& transfer);
LaneOutcome recv_direct_io(LaneContext& context, Transfer& transfer);
LaneOutcome recv_mapped(LaneContext& context, Transfer& transfer);
LaneOutcome recv_parked(LaneContext& context, Transfer& transfer);
LaneOutcome recv_direct(LaneContext& context, Transfer& transfer);

// --- shared by lanes ---

// The size of the next piece: whole slots, smaller at the start so that the first copies begin
// soon, and towards the end so that channels finish together.
std::uint64_t piece_bytes(const Transfer& transfer, std::uint32_t channels);

// Over before it was worth pinning more memory for it: a segment takes 0.8 ms, in which the driver
// holds other copies up.
[[nodiscard]] bool is_short(const Transfer& transfer);

// Whether all that a send's channels write for the device is still in their cores' own caches when
// it is copied, because that is so little.
bool stays_in_caches(const Transfer& transfer);

struct ClaimedPiece {
  Range range;
  Warmth warmth = Warmth::warm;
};

// Claims a piece of either kind, of the named kind as long as there is one. A warm one, whose end
// the transfer may choose, is chosen out of so many bytes more.
std::optional<ClaimedPiece> claim_any(Transfer& transfer,
                                      Warmth first,
                                      std::uint64_t most_bytes,
                                      std::uint64_t choice_bytes = 0);

// How many tasks a parked receive wants.
std::uint32_t parked_recv_tasks(const Transfer& transfer);

// Reads a whole piece through the page cache. Throws Error(short_file, io_error).
void read_piece(LaneContext& context, Transfer& transfer, Range piece, std::byte* memory);

// Reads what the page cache has of a piece; returns the bytes from its start. Throws as above.
std::uint64_t read_cached_piece(Transfer& transfer, Range piece, std::byte* memory);

// Writes a whole piece through the page cache. Throws Error(io_error).
void write_piece(LaneContext& context, Transfer& transfer, Range piece, const std::byte* memory);

// Runs one step of a lane. What it throws fails the transfer, and false says so: the lane then
// stops claiming but still sees its copies through, so that what is missing is known exactly.
template <typename Step>
bool attempt(Transfer& transfer, Step&& step) {
  try {
    step();
    return true;
  } catch (...) {
    transfer.fail(current_failure());
    return false;
  }
}

// Error(short_file) for a file that ended at `offset`.
[[noreturn]] void throw_short_file(Transfer& transfer, std::uint64_t offset);

// For a transfer that waits once for what registering needs: what takes longer is not worth it.
inline constexpr std::chrono::milliseconds registrar_patience{1000};

// Whether registering would not stop what others do on the device. Waits until it would not, up to
// `patience`, or until the transfer stops.
[[nodiscard]] bool may_register(LaneContext& context,
                                const Transfer& transfer,
                                std::chrono::milliseconds patience);

// Waits for a copy; throws Error(device_error) when it takes longer than device_timeout.
void await_copy(LaneContext& context,
                Event& event,
                const char* operation,
                const Polling& polling = {});

}  // namespace hippogriff
