// What lies where in the segment. Another process may have written every byte of it.
#pragma once

#include "node/books_image.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hippogriff::node {

inline constexpr std::uint64_t segment_magic = 0x45444f4e4f504948;  // "HIPONODE"
inline constexpr std::uint32_t segment_version = 7;

// Keeps its meaning in every version, so that versions can tell each other apart.
struct SegmentHeader {
  std::uint64_t magic = 0;
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint64_t segment_bytes = 0;
  std::array<std::uint64_t, 4> unused{};
  std::uint64_t checksum = 0;  // XXH3 of all before
};

static_assert(sizeof(SegmentHeader) == 64);

// Who has a slot, written by its owner alone.
struct ClientIdentity {
  std::uint64_t checksum = 0;  // XXH3 of all that follows
  std::uint64_t start_time = 0;
  std::uint64_t pid_namespace = 0;
  // Of a removed file, where it is carried over from that and has its lock there; 0: of this one.
  std::uint64_t origin_inode = 0;
  // The device of that file, by which the kernel tells its locks; 0: not known (see life.hpp).
  std::uint64_t origin_device = 0;
  std::uint32_t pid = 0;
  std::uint32_t term = 0;  // another one for each client that has the slot
  // Whose reservations it keeps to: the slot's own index where it has its own.
  std::uint32_t leader = 0;
  std::uint32_t leader_term = 0;
  std::uint32_t handed_over = 0;  // 1: its process went on as another program, and keeps the slot
  std::uint32_t served_pid = 0;   // the process that a server has the slot for; 0: its own
};

static_assert(sizeof(ClientIdentity) == 64);

std::uint64_t identity_checksum(const ClientIdentity& identity);

// What a client uses of a device, and what those who follow it use together of what it was granted.
struct DeviceUse {
  std::atomic<std::uint64_t> key;  // device_key of its name; 0: none
  std::atomic<std::uint64_t> used_bytes;
  std::atomic<std::uint64_t> group_used_bytes;
  std::atomic<std::uint64_t> granted_bytes;
};

// The letters of a drive's name.
using DriveName = std::array<std::atomic<std::uint64_t>, 2>;

// A transfer that its owner has in flight: see shown_records.hpp.
struct alignas(64) TransferRecord {
  std::atomic<std::uint64_t> sequence;  // even and not 0: the rest is one transfer's
  std::atomic<std::uint64_t> device;    // device_key of its name
  DriveName drive;
  std::atomic<std::uint64_t> shape;  // direction, route, phase and widths
  std::atomic<std::uint64_t> bytes_total;
  std::atomic<std::uint64_t> bytes_done;
  std::atomic<std::int64_t> started_ns;
};

inline constexpr std::size_t transfers_shown_max = 8;

// An array in storage that its owner has open: see shown_records.hpp, and arrays.cpp for the
// counts.
struct alignas(64) ArrayRecord {
  std::atomic<std::uint64_t> sequence;  // even and not 0: device to opened_ns is one array's
  std::atomic<std::uint64_t> device;    // device_key of its name
  DriveName drive;
  std::atomic<std::uint64_t> size_bytes;
  std::atomic<std::uint64_t> cache_bytes;
  std::atomic<std::uint64_t> line_bytes;
  std::atomic<std::int64_t> opened_ns;
  std::atomic<std::int64_t> counted_ns;  // when the counts were written
  std::atomic<std::uint64_t> accesses;
  std::atomic<std::uint64_t> misses;
  std::atomic<std::uint64_t> overwritten;
  std::atomic<std::uint64_t> written_back;
  std::atomic<std::uint64_t> read_bytes;
  std::atomic<std::uint64_t> written_bytes;
  std::atomic<std::uint64_t> in_flight;
  std::atomic<std::uint64_t> drive_answers;
  std::atomic<std::uint64_t> drive_least_ns;
  std::atomic<std::uint64_t> drive_limit;
  std::atomic<std::uint64_t> uncounted;  // not 0: some accesses are not counted
};

inline constexpr std::size_t arrays_shown_max = 4;

// What a client shows: written without the lock, by itself but for `group_used_bytes`.
struct alignas(64) ClientBoard {
  std::array<DeviceUse, devices_max> uses;
  std::array<TransferRecord, transfers_shown_max> transfers;
  std::atomic<std::uint64_t> unshown_transfers;  // that found no record free
  std::atomic<std::uint64_t> unshown_arrays;
  std::array<ArrayRecord, arrays_shown_max> arrays;
};

// Clients whose boards show something, by bit, so that nobody looks at all of them.
using ShowingBits = std::array<std::atomic<std::uint64_t>, clients_max / 64>;

static_assert(sizeof(TransferRecord) == 64);
static_assert(sizeof(ArrayRecord) == 192);
static_assert(offsetof(ClientBoard, transfers) == 512);
static_assert(offsetof(ClientBoard, arrays) == 512 + transfers_shown_max * 64 + 64);
static_assert(sizeof(ClientBoard) == offsetof(ClientBoard, arrays) + arrays_shown_max * 192);

inline constexpr std::size_t half_bytes = (image_bytes_max + 4095) / 4096 * 4096;

struct SegmentLayout {
  SegmentHeader header;
  alignas(64) std::atomic<std::uint32_t> lock;    // the owner's slot and term, or 0
  alignas(64) std::atomic<std::uint64_t> commit;  // sequence of the image that counts
  alignas(64) std::array<std::atomic<std::uint32_t>, clients_max> signals;
  alignas(64) std::array<ClientIdentity, clients_max> identities;
  alignas(64) ShowingBits showing;  // transfers
  alignas(64) ShowingBits showing_arrays;
  alignas(4096) std::array<std::array<std::byte, half_bytes>, 2> halves;
  alignas(4096) std::array<ClientBoard, clients_max> boards;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
static_assert(offsetof(SegmentLayout, lock) == 64);
static_assert(offsetof(SegmentLayout, commit) == 128);
static_assert(offsetof(SegmentLayout, signals) == 192);
static_assert(offsetof(SegmentLayout, identities) == 192 + 1024);
static_assert(offsetof(SegmentLayout, showing) == 192 + 1024 + clients_max * 64);
static_assert(offsetof(SegmentLayout, showing_arrays) == offsetof(SegmentLayout, showing) + 64);
static_assert(offsetof(SegmentLayout, halves) == 20480);
static_assert(offsetof(SegmentLayout, boards) == 20480 + 2 * half_bytes);
static_assert(sizeof(SegmentLayout) ==
              offsetof(SegmentLayout, boards) + clients_max * sizeof(ClientBoard));

// Where the bytes of the slots lie that kernel locks are about: beyond the end of the file.
inline constexpr std::int64_t slots_lock_offset = std::int64_t{1} << 40U;

}  // namespace hippogriff::node
