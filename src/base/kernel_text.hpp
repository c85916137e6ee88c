// Reads what the kernel tells of processes, locks, clocks, memory and quotas in /proc and /sys,
// whatever is in the text. Numbers that cannot be are not believed: then nothing is told.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace hippogriff {

// A lock of an open file description, of /proc/locks.
struct OpenFileLock {
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::uint64_t inode = 0;
  std::int64_t offset_bytes = 0;  // of the first byte that it is on
};

// Of a line such as "7: OFDLCK ADVISORY  WRITE -1 00:1a:4242 1099511627776 1099511627776"; nothing
// for other locks, and for those that are only waited for.
std::optional<OpenFileLock> parse_open_file_lock(std::string_view line);

// Three fields of /proc/<pid>/stat.
struct ProcessStat {
  char state = '\0';  // 'R', 'S', ... 'Z'
  std::uint64_t thread_count = 0;
  std::uint64_t start_ticks = 0;  // after boot
};

// Nothing where the text ends before the fields do: the last one could be part of a number.
std::optional<ProcessStat> parse_process_stat(std::string_view text);

// How far ahead of the machine's clocks those of a time namespace are.
struct ClockOffsets {
  std::int64_t monotonic_ns = 0;
  std::int64_t boottime_ns = 0;
};

// Of /proc/<pid>/timens_offsets, up to as much as the kernel lets clocks be shifted.
std::optional<ClockOffsets> parse_clock_offsets(std::string_view text);

// The cores, rounded up, that cgroup 2's cpu.max allows: "200000 100000" are 2. Nothing where there
// is no limit ("max 100000").
std::optional<std::uint32_t> parse_cpu_max(std::string_view text);

// A line of /proc/meminfo such as "MemAvailable:", in bytes; nothing where there is no such line,
// or no such number.
std::optional<std::uint64_t> parse_memory(std::string_view text, std::string_view name);

// A line of cgroup 2's memory.stat such as "active_file".
std::optional<std::uint64_t> parse_field(std::string_view text, std::string_view name);

// A file that is one number, such as cgroup 2's memory.max; nothing where that is "max".
std::optional<std::uint64_t> parse_number(std::string_view text);

// The group of a controller of cgroup 1 ("memory"), or of cgroup 2 (""), of /proc/<pid>/cgroup:
// "/system.slice/job", "" for the root. Nothing where there is none, and where it lies outside of
// what the process sees ("/../other").
std::optional<std::string_view> parse_cgroup(std::string_view text, std::string_view controller);

}  // namespace hippogriff
