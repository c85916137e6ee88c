// The measured bandwidths and latencies the router predicts from: kept per machine, refreshed by
// what transfers see. Rates in bytes per second, costs in CPU seconds per byte.
#pragma once

#include "transfer/route.hpp"

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace hippogriff {

// A rate with the CPU time it costs.
struct Rate {
  double bytes_per_second = 0;
  double cpu_seconds_per_byte = 0;

  friend bool operator==(const Rate&, const Rate&) = default;
};

// Which figures of an entry a calibration measured: bit n for the n-th name of the entry's list.
// The others are defaults, or what transfers made of them.
using Figures = std::uint32_t;
inline constexpr std::array<std::string_view, 6> link_figures = {"to_device",
                                                                 "to_host",
                                                                 "latency_seconds",
                                                                 "register_pages",
                                                                 "register_shared_memory",
                                                                 "register_new_pages"};
inline constexpr std::array<std::string_view, 4> drive_figures = {
    "direct_read", "direct_write", "latency_seconds", "depth"};
inline constexpr std::array<std::string_view, 4> host_figures = {
    "cached_read_per_channel", "cached_read_max", "cached_write_per_channel", "cached_write_max"};

// One device's link.
struct LinkCalibration {
  Rate to_device;
  Rate to_host;
  double latency_seconds = 10e-6;
  // What one thread gets through that maps, registers and releases windows while the device copies
  // them, when the link does not hold it up: pages of a file on a drive, tmpfs pages, and tmpfs
  // pages that come into being on the way (recv).
  Rate register_pages;
  Rate register_shared_memory;
  Rate register_new_pages;
  bool measured = false;  // by a calibration, not only corrected in passing
  Figures measured_figures = 0;

  friend bool operator==(const LinkCalibration&, const LinkCalibration&) = default;
};

// One drive (or file system without one).
struct DriveCalibration {
  Rate direct_read;
  Rate direct_write;
  double latency_seconds = 100e-6;
  std::uint32_t depth = 4;  // that reaches the rate: each is DirectQueue::reads_per_depth reads
  bool measured = false;
  Figures measured_figures = 0;

  friend bool operator==(const DriveCalibration&, const DriveCalibration&) = default;
};

// The CPU's side of the page cache.
struct HostCalibration {
  Rate cached_read_per_channel;   // page cache to pinbuffer, one thread
  double cached_read_max = 0;     // all threads together
  Rate cached_write_per_channel;  // pinbuffer to page cache
  double cached_write_max = 0;

  friend bool operator==(const HostCalibration&, const HostCalibration&) = default;
};

// What the router sees: one device, one drive, this host.
struct Calibration {
  LinkCalibration link;
  DriveCalibration drive;
  HostCalibration host;
};

// What holds before anything was measured: the machine of the project's own measurements (one H100
// on PCIe 5 x16, 16 cores), rounded down, so that plans there start out near the best.
// `device` and `drive` are names ("cuda:0", "host"; "nvme0n1", "" for none).
Calibration default_calibration(std::string_view device, std::string_view drive);

// What a finished transfer tells about one lane.
struct Observation {
  Lane lane = Lane::buffered;
  Direction direction = Direction::send;
  bool in_memory = false;
  std::uint64_t bytes = 0;
  double seconds = 0;      // that the lane was at work
  double cpu_seconds = 0;  // of its threads
  std::uint32_t channels = 1;
  bool alone = true;  // nothing else was in flight: only then rates are taken
  // Of the whole transfer while its lanes were at work, if only page cache lanes (buffered, mapped)
  // carried it; else 0, and the link is not judged.
  double transfer_bytes_per_second = 0;
  std::uint64_t drive_bytes = 0;  // of the direct lane's, what went past the page cache
  // Of its batches of copies to the device, the share that found none under way: near 0 the link
  // was never idle, near 1 the channels were too few. Negative: not known.
  double link_idle_share = -1;
};

// The file's format, both ways. parse throws Error(invalid_argument) for anything that is not a
// calibration: wrong types, absent or non-finite or negative numbers, rates outside 1 KB/s to
// 10 TB/s, more than 256 entries, names over 256 bytes, more than 1 MiB.
struct CalibrationFile {
  std::map<std::string, LinkCalibration> links;
  std::map<std::string, DriveCalibration> drives;
  HostCalibration host;
  bool host_measured = false;
  Figures host_measured_figures = 0;

  friend bool operator==(const CalibrationFile&, const CalibrationFile&) = default;
};

CalibrationFile parse_calibration(std::string_view json);
// Throws for what parse would refuse, so that what is written can be read.
std::string format_calibration(const CalibrationFile& calibration);

// Calibrations of all devices and drives of this machine, kept in a JSON file
// ($HIPPOGRIFF_CALIBRATION, else $XDG_CACHE_HOME/hippogriff/calibration.json): untrusted input,
// bounded and checked; a broken or foreign file is ignored with one warning and replaced. Saved
// atomically. Thread-safe.
class CalibrationStore {
 public:
  // Reads the file if there is one; never throws for what it finds in it.
  explicit CalibrationStore(std::filesystem::path file);

  static std::filesystem::path default_file();

  // Measured values where there are some, else careful defaults.
  [[nodiscard]] Calibration get(const std::string& device, const std::string& drive) const;
  // True when both were put, now or by a process before.
  [[nodiscard]] bool measured(const std::string& device, const std::string& drive) const;
  [[nodiscard]] Figures host_measured_figures() const;
  // Figures of 0 were not measured: they stay as they are, the others are known as measured. Throws
  // Error(invalid_argument) for what parse_calibration would refuse.
  void put(const std::string& device, const std::string& drive, const Calibration& calibration);
  // Moves the rates towards what was seen (exponentially weighted, a quarter of the way, ignoring
  // transfers under 16 MiB and those that were not alone). A lane of the CPU is as fast as its
  // threads were while they ran, whatever they waited for. What `direct` shows raises rates and
  // never lowers them; `parked` teaches nothing.
  void observe(const std::string& device, const std::string& drive, const Observation& observation);
  // Writes the file if anything changed since, keeping what other processes wrote about other
  // devices and drives. Without a file (an empty path) does nothing. Throws Error(io_error).
  void save();

  [[nodiscard]] const std::filesystem::path& file() const { return file_; }

 private:
  [[nodiscard]] Calibration get_locked(const std::string& device, const std::string& drive) const;
  void store_seen(const std::string& device, const std::string& drive, const Calibration& seen);

  const std::filesystem::path file_;
  std::mutex saving_;  // before mutex_
  mutable std::mutex mutex_;
  CalibrationFile known_;
  std::set<std::string> changed_links_;
  std::set<std::string> changed_drives_;
  bool host_changed_ = false;
};

}  // namespace hippogriff
