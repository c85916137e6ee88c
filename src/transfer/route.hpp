// The words of routing: routes, lanes, plans. A route is what a user reads; a lane is one pipeline
// that the engine runs; a plan says which lanes carry one transfer and how wide each is.
#pragma once

#include <hippogriff/hippogriff.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff {

enum class Direction : std::uint8_t { send, recv };  // file to device, device to file

enum class Route : std::uint8_t {
  automatic = HIPPOGRIFF_ROUTE_AUTO,
  direct = HIPPOGRIFF_ROUTE_DIRECT,
  mapped = HIPPOGRIFF_ROUTE_MAPPED,
  pipelined = HIPPOGRIFF_ROUTE_PIPELINED,
  parked = HIPPOGRIFF_ROUTE_PARKED,
};

std::string_view route_name(Route route);

// What the engine runs. `buffered` and `direct_io` together are the pipelined route.
enum class Lane : std::uint8_t {
  direct,     // storage and device without staging (cuFile; a host-addressable device)
  mapped,     // windows of a file mapping, registered, copied by the device's copy engine
  buffered,   // page cache <-> pinbuffer by the CPU, overlapped with copies
  direct_io,  // O_DIRECT <-> pinbuffer by the drive, overlapped with copies
  parked,     // host memory outside the pinbuffer, while the device is not ready
};

inline constexpr std::size_t lane_count = 5;
std::string_view lane_name(Lane lane);
Route route_of(Lane lane);

// How wide each lane of a transfer is; 0 leaves it out.
struct Plan {
  std::uint32_t direct_channels = 0;    // threads calling cuFile, or reading in place
  std::uint32_t mapped_channels = 0;    // threads registering windows
  std::uint32_t buffered_channels = 0;  // threads reading or writing through the page cache
  std::uint32_t direct_io_depth = 0;    // of the drive to begin with: some requests each
  bool park = false;                    // go on into host memory while the device is not ready

  friend bool operator==(const Plan&, const Plan&) = default;
};

inline constexpr std::uint32_t any_channels = std::numeric_limits<std::uint32_t>::max();
inline constexpr std::uint32_t any_slots = std::numeric_limits<std::uint32_t>::max();

// What a transfer looks like to the router.
struct TransferFacts {
  Direction direction = Direction::send;
  std::uint64_t size_bytes = 0;
  double cached_fraction = 0;      // of the extent, in the page cache (send)
  bool in_memory = false;          // tmpfs: no drive behind it
  bool direct_io = false;          // O_DIRECT works for this file
  bool can_write_mapped = false;   // recv: threads may write through a mapping side by side
  bool device_ready = true;        // false: waits for memory or for a stream
  bool parked_sends_wait = false;  // other sends to this device wait for its memory (Gullfoss 4.2)
  bool host_addressable = false;
  bool in_place = true;     // host_addressable: O_DIRECT may move bytes to and from where they lie
  bool new_memory = false;  // send to host memory: the kernel has yet to make its pages
  bool hashes = false;      // send to host memory: channels also hash what they bring
  bool can_map = false;     // registration works for this device, file and direction
  bool maps_aside = true;   // registering holds up nobody on the device now
  bool can_mix = false;     // windows can be registered beside the channels
  bool can_direct = false;  // cuFile is real for this file, or host_addressable
  std::string why_not_map;
  std::string why_not_direct;
  std::uint32_t cores = 1;                    // that this process may use
  std::uint32_t slots_max = any_slots;        // of the pinbuffer that it may use: 2 at least, even
  std::uint32_t channels_max = any_channels;  // of each lane, and requests at the drive: 1 at least
};

// What other processes of the machine have in flight on a drive or a link.
struct OthersLoad {
  std::uint32_t processes = 0;
  double bytes_per_second = 0;  // together, since each of their transfers began
  std::uint32_t requests = 0;   // of a drive: that they plan to keep in flight
};

// What is in flight now: in this process, and in the others that the node knows.
struct TransferLoad {
  std::uint32_t link_transfers = 0;   // other transfers on this device's link and direction
  std::uint32_t drive_transfers = 0;  // other transfers on this drive
  std::uint32_t busy_channels = 0;    // CPU channels at work for other transfers
  OthersLoad others_on_link = {};     // in this direction
  OthersLoad others_on_drive = {};
  std::uint32_t others_want_memory = 0;  // processes whose sends wait for memory of this device
};

// What one route would cost now.
struct RoutePrediction {
  Route route = Route::automatic;
  bool possible = false;
  std::string why_not;  // when it is not possible
  double seconds = 0;   // latency + bytes / bandwidth left
  double cpu_seconds = 0;
  Plan plan;
};

}  // namespace hippogriff
