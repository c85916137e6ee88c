// What a plan would cost: the router's arithmetic. Every formula is affine in the bytes for a given
// plan, so that more bytes are never predicted faster. Pure: no system calls.
#pragma once

#include "transfer/calibration.hpp"
#include "transfer/route.hpp"

#include <cstdint>

namespace hippogriff {

struct PlanCost {
  double seconds = 0;
  double cpu_seconds = 0;
};

// What the engine's pieces are like, as far as predictions depend on it. Bytes and seconds.
struct EngineShape {
  static constexpr double piece_bytes_max = 2.0 * (1 << 20);  // a slot of the pinbuffer
  static constexpr std::uint32_t slots_per_channel = 2;       // one is filled, the other copied
  static constexpr std::size_t pinned_bytes_enough = std::size_t{48} << 20;  // for all channels
  static constexpr double piece_bytes_min = 512.0 * (1 << 10);  // pieces shrink towards the end
  static constexpr double window_bytes_min = 4.0 * (1 << 20);   // so do windows of a mapping
  static constexpr double absorbed_bytes = 1 << 20;       // writes the page cache takes at once
  static constexpr double channel_start_seconds = 30e-6;  // waking a second thread or a queue
  static constexpr double next_channel_start_seconds = 10e-6;  // and each further one
  static constexpr double mapped_start_seconds = 500e-6;  // map, first window, unmap, TLB flushes
  // More threads than this only slow each other: the memory is the limit then.
  static constexpr std::uint32_t channels_max = 12;
  // Who sends a file's parts to many destinations on a GPU makes the next ones meanwhile: 10,000
  // tensors take 37 GB/s beside 12 channels and 38 to 43 beside 10, few large ones 52 beside both
  // (H100 machine).
  static constexpr std::uint32_t scattered_channels_max = 10;
  // Channels that hash what they bring bring less, and more of them bring what others do: 16 that
  // hash as much as 12 that do not, 36 GB/s (H200 machine, 16 cores).
  static constexpr double hashing_rate = 0.75;
  // So do those that fill new memory, whose pages the kernel makes and clears on their time as they
  // get there: 12 bring 21 GB/s instead of 33 there.
  static constexpr double new_memory_rate = 0.6;
  // And those that read files in memory, page by page: with up to 16 of them 1 and 4 GiB reach an
  // H200 with 49.6 and 53.2 GB/s, with 12 with 48.7 and 52.4. From ext4 both do the same.
  static constexpr std::uint32_t slowed_channels_max = 16;
  // From so many channels on, a file in memory is written through a mapping: threads make its pages
  // side by side there, while write() lets one in at a time.
  static constexpr std::uint32_t mapped_write_channels_min = 4;
  static constexpr std::uint32_t mapped_channels_max = 4;
  static constexpr std::uint32_t depth_max = 256;
};

// Channels that a transfer has at most, whatever the cores.
[[nodiscard]] std::uint32_t most_channels(const TransferFacts& facts);

// Two stages that work at the same time: near the slower one's rate, a little below where they are
// equally fast, because not every bubble overlaps (8 channels of 6.4 GB/s on a link of 55: 48).
[[nodiscard]] double joint_rate(double first, double second);

// Of `depth` requests that keep a drive busy, those for one transfer: all where no other process
// uses the drive. 1 at least.
[[nodiscard]] std::uint32_t drive_depth_share(std::uint32_t depth, const TransferLoad& load);

// What `channels` threads that register windows do of what one does. Registration is serialised in
// the driver: more threads fill its bubbles. New pages (recv) are also cleared, outside of its
// lock.
[[nodiscard]] double mapped_speedup(double channels, bool in_memory, Direction direction);

// The bandwidth left for one transfer and what each plan makes of it. Thread-safe when const.
class CostModel {
 public:
  CostModel(const TransferFacts& facts, const TransferLoad& load, const Calibration& calibration);

  // What a plan means for a route. Sends may mix mapped, buffered and direct_io lanes; receives use
  // exactly one of them. Parked: the file's side and the device's one after the other.
  [[nodiscard]] PlanCost cost(Route route, const Plan& plan) const;

  [[nodiscard]] double cached_bytes() const { return cached_; }

  [[nodiscard]] double cold_bytes() const { return cold_; }

  // Until a parked receive has left the device: memory to park in is made, then copied to.
  [[nodiscard]] double drain_seconds() const;

  // Threads this transfer may use: 1 to EngineShape::channels_max, or slowed_channels_max.
  [[nodiscard]] std::uint32_t channels_available() const;
  // Requests in flight that give this transfer its share of the drive.
  [[nodiscard]] std::uint32_t depth_wanted(double bytes) const;
  // Threads that block on the drive which do the same.
  [[nodiscard]] std::uint32_t blocking_channels_wanted() const;
  // Whether a thread that maps does at least what it would do reading.
  [[nodiscard]] bool mapping_outruns_a_channel() const;
  // The fewest buffered channels that bring the page cache's side, beside `mapped_channels`, within
  // 3 % of what all of `channels` would. Does not depend on the transfer's size.
  [[nodiscard]] std::uint32_t channels_wanted(std::uint32_t mapped_channels,
                                              std::uint32_t channels) const;

 private:
  struct Work;

  [[nodiscard]] PlanCost staged(const Plan& plan) const;
  [[nodiscard]] PlanCost buffered_write(const Plan& plan) const;
  [[nodiscard]] PlanCost direct(const Plan& plan) const;
  [[nodiscard]] PlanCost parked(const Plan& plan) const;
  [[nodiscard]] double buffered_rate(std::uint32_t channels) const;
  [[nodiscard]] bool writes_through_mapping(std::uint32_t channels) const;
  [[nodiscard]] double mapped_rate(std::uint32_t channels) const;
  [[nodiscard]] double drive_rate(std::uint32_t depth, double bytes) const;
  [[nodiscard]] double cold_buffered_rate(std::uint32_t channels) const;
  void add_cached(const Plan& plan, Work& work) const;
  void add_cold(const Plan& plan, Work& work) const;
  void add_staged_start(const Plan& plan, Work& work) const;
  [[nodiscard]] double link_seconds(const Plan& plan) const;
  [[nodiscard]] PlanCost finish(const Work& work, double least_seconds) const;

  bool sending_;
  bool in_memory_;
  bool can_write_mapped_;
  bool host_addressable_;
  bool in_place_;
  double channels_max_;
  double bytes_;
  double cached_;
  double cold_;
  double cores_;
  double busy_channels_;
  double link_;
  double link_cpu_;
  double latency_;
  double channel_;
  double channel_cpu_;
  double channels_max_rate_;
  double register_;
  double register_cpu_;
  double new_pages_;
  double drive_;
  double drive_cpu_;
  double drive_latency_;
  double drive_depth_;      // this transfer's share
  double drive_depth_all_;  // what keeps the drive busy
  double drive_sharers_;    // that together have drive_depth_all_
};

}  // namespace hippogriff
