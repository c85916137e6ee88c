// The router's arithmetic: seconds and CPU seconds of one plan.
#include "transfer/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace hippogriff {
namespace {

// A calibration may come from anywhere: a rate of nothing must not divide by zero.
constexpr double least_rate = 1e3;

constexpr double mapped_gain = 0.05;
constexpr double mapped_gain_in_memory = 0.08;
constexpr double mapped_gain_new_pages = 0.15;

// Making and filling pages of a new file in memory through a mapping: bytes per second of one
// thread and of all, CPU seconds per byte (an H100 machine's tmpfs: 2.9 GB/s by 4 threads, 4.1 by 8
// and 4.6 by 12; one thread that writes gets 2.4 to 2.9).
constexpr double mapped_write_rate = 0.5e9;
constexpr double mapped_write_max = 4.6e9;
constexpr double mapped_write_cpu = 2.1e-9;

// Readahead and writeback leave gaps that direct requests do not.
constexpr double readahead_efficiency = 0.9;

// Without staging, the CPU only submits and reaps.
constexpr double direct_cpu_share = 0.5;

// Memory to park in is fetched from the system, cleared and pinned on the way.
constexpr double parking_cpu_seconds_per_byte = 200e-12;

// A page cache this much faster than the cold part needs costs no time and no thread too many.
constexpr double cold_headroom = 1.25;

double usable_rate(double bytes_per_second) {
  return std::isfinite(bytes_per_second) ? std::max(bytes_per_second, least_rate) : least_rate;
}

double usable_cost(double seconds) {
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

double usable_fraction(double fraction) {
  return std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
}

// Requests in flight that an extent has at most, of those that keep the drive busy.
std::uint32_t requests_of(double bytes, double depth) {
  const double requests = std::ceil(bytes / EngineShape::piece_bytes_min);
  const double depth_max = EngineShape::depth_max;
  return static_cast<std::uint32_t>(std::clamp(std::min(requests, depth), 1.0, depth_max));
}

// Transfers that share a drive's requests: one where no other process uses it, as if alone.
std::uint64_t sharers(const TransferLoad& load) {
  const std::uint64_t processes = std::uint64_t{1} + load.others_on_drive.processes;
  return processes == 1 ? 1 : processes * (std::uint64_t{1} + load.drive_transfers);
}

double threads_start_seconds(std::uint32_t threads) {
  return threads < 2 ? 0
                     : EngineShape::channel_start_seconds +
                           EngineShape::next_channel_start_seconds * (threads - 2);
}

}  // namespace

double joint_rate(double first, double second) {
  const double slower = std::min(first, second);
  const double ratio = slower / std::max(first, second);
  const double squared = ratio * ratio;
  const double eighth_power = squared * squared * squared * squared;
  return slower / std::sqrt(std::sqrt(std::sqrt(1.0 + eighth_power)));
}

// A busy drive shares itself by requests in flight: fewer of them would not leave it freer, only
// this transfer slower. Among processes that all keep to it they are the shares.
std::uint32_t drive_depth_share(std::uint32_t depth, const TransferLoad& load) {
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(depth / sharers(load), 1));
}

double mapped_speedup(double channels, bool in_memory, Direction direction) {
  const double shared =
      direction == Direction::send ? mapped_gain_in_memory : mapped_gain_new_pages;
  const double most = EngineShape::mapped_channels_max;
  return 1.0 + (in_memory ? shared : mapped_gain) * (std::clamp(channels, 1.0, most) - 1);
}

// What the lanes of one plan add up to before the limits that they share.
struct CostModel::Work {
  double cached_seconds = 0;
  double cold_seconds = 0;
  double start_seconds = 0;
  double cpu_seconds = 0;
};

std::uint32_t most_channels(const TransferFacts& facts) {
  const bool to_gpu = facts.direction == Direction::send && !facts.host_addressable;
  const bool slowed = facts.hashes || facts.new_memory || (facts.in_memory && to_gpu);
  return slowed ? EngineShape::slowed_channels_max : EngineShape::channels_max;
}

CostModel::CostModel(const TransferFacts& facts,
                     const TransferLoad& load,
                     const Calibration& calibration)
    : sending_(facts.direction == Direction::send),
      in_memory_(facts.in_memory),
      can_write_mapped_(facts.can_write_mapped),
      host_addressable_(facts.host_addressable),
      in_place_(facts.in_place && facts.direct_io),
      channels_max_(most_channels(facts)),
      bytes_(static_cast<double>(facts.size_bytes)),
      cached_(facts.in_memory ? bytes_ : bytes_ * usable_fraction(facts.cached_fraction)),
      cold_(bytes_ - cached_) {
  if (!sending_ && !in_memory_) {
    cached_ = 0;
    cold_ = bytes_;
  }
  const double cores = std::max(facts.cores, 1u);
  busy_channels_ = load.busy_channels;
  cores_ = std::min<double>(std::max(cores - busy_channels_, cores / (1.0 + busy_channels_)),
                            facts.channels_max);

  const Rate& link = sending_ ? calibration.link.to_device : calibration.link.to_host;
  link_ = usable_rate(link.bytes_per_second) / (1.0 + load.link_transfers) /
          (1.0 + load.others_on_link.processes);
  link_cpu_ = usable_cost(link.cpu_seconds_per_byte);
  latency_ = usable_cost(calibration.link.latency_seconds);

  const HostCalibration& host = calibration.host;
  const Rate& channel = sending_ ? host.cached_read_per_channel : host.cached_write_per_channel;
  channel_ = usable_rate(channel.bytes_per_second);
  // What a thread costs is at most its time. The calibration may say more: a rate and its inverse
  // are averaged apart, and direct transfers raise the one and tell nothing of the other.
  channel_cpu_ = std::min(usable_cost(channel.cpu_seconds_per_byte), 1.0 / channel_);
  const double slowed = (facts.hashes ? EngineShape::hashing_rate : 1.0) *
                        (facts.new_memory ? EngineShape::new_memory_rate : 1.0);
  channel_ *= slowed;
  channel_cpu_ /= slowed;
  channels_max_rate_ = usable_rate(sending_ ? host.cached_read_max : host.cached_write_max);

  const Rate& shared =
      sending_ ? calibration.link.register_shared_memory : calibration.link.register_new_pages;
  const Rate& pages = in_memory_ ? shared : calibration.link.register_pages;
  register_ = usable_rate(pages.bytes_per_second);
  register_cpu_ = usable_cost(pages.cpu_seconds_per_byte);
  new_pages_ = usable_rate(calibration.link.register_new_pages.bytes_per_second);

  const Rate& drive = sending_ ? calibration.drive.direct_read : calibration.drive.direct_write;
  drive_ = usable_rate(drive.bytes_per_second) / (1.0 + load.drive_transfers) /
           (1.0 + load.others_on_drive.processes);
  drive_cpu_ = usable_cost(drive.cpu_seconds_per_byte);
  drive_latency_ = usable_cost(calibration.drive.latency_seconds);
  drive_depth_ = std::min(drive_depth_share(calibration.drive.depth, load), facts.channels_max);
  drive_depth_all_ = std::max(calibration.drive.depth, 1u);
  drive_sharers_ = static_cast<double>(sharers(load));
}

std::uint32_t CostModel::channels_available() const {
  return static_cast<std::uint32_t>(std::clamp(std::floor(cores_), 1.0, channels_max_));
}

std::uint32_t CostModel::depth_wanted(double bytes) const {
  return requests_of(bytes, drive_depth_);
}

std::uint32_t CostModel::blocking_channels_wanted() const {
  return static_cast<std::uint32_t>(std::min(drive_depth_, channels_max_));
}

double CostModel::buffered_rate(std::uint32_t channels) const {
  if (channels == 0) {
    return 0;
  }
  const double running = std::min<double>(channels, std::max(cores_, 1.0));
  const double share = running / (running + busy_channels_);
  const double plain = std::min(running * channel_, channels_max_rate_ * share);
  if (!writes_through_mapping(channels)) {
    return plain;
  }
  return std::max(plain, std::min(running * mapped_write_rate, mapped_write_max * share));
}

bool CostModel::writes_through_mapping(std::uint32_t channels) const {
  return !sending_ && in_memory_ && can_write_mapped_ &&
         channels >= EngineShape::mapped_write_channels_min;
}

double CostModel::mapped_rate(std::uint32_t channels) const {
  if (channels == 0) {
    return 0;
  }
  const double busy = std::min<double>(channels, cached_ / EngineShape::window_bytes_min);
  return register_ * mapped_speedup(busy, in_memory_, sending_ ? Direction::send : Direction::recv);
}

double CostModel::drive_rate(std::uint32_t depth, double bytes) const {
  const double all = requests_of(bytes, drive_depth_all_);
  return drive_ * std::min(1.0, drive_sharers_ * static_cast<double>(depth) / all);
}

double CostModel::cold_buffered_rate(std::uint32_t channels) const {
  const double copied = buffered_rate(channels);
  // Beside others the kernel's requests get no more of the drive than as many direct ones: where
  // shares are rounded down all together leave some of it.
  const double share = std::min(1.0, drive_sharers_ * drive_depth_ / drive_depth_all_);
  const double drive = readahead_efficiency * share * drive_;
  if (!sending_) {
    return joint_rate(copied, drive);  // writeback goes on beside the writes
  }
  const double one = 1.0 / (1.0 / drive_ + 1.0 / channel_);
  return std::min({copied, drive, channels * one});
}

bool CostModel::mapping_outruns_a_channel() const {
  return mapped_rate(1) >= buffered_rate(1);
}

std::uint32_t CostModel::channels_wanted(std::uint32_t mapped_channels,
                                         std::uint32_t channels) const {
  double wanted = link_;
  if (sending_ && cold_ > 0) {
    // The cached part need not be there before the cold part is.
    wanted = std::min(wanted, cold_headroom * drive_ * std::max(cached_ / cold_, 1e-6));
  }
  // A quarter of what mapping promises: pages of small folios register several times slower, and a
  // channel too many costs less than a link that waits.
  const double beside = 0.25 * mapped_rate(mapped_channels);
  const double enough = 0.97 * joint_rate(beside + buffered_rate(channels), wanted);
  std::uint32_t fewest = 1;
  while (fewest < channels && joint_rate(beside + buffered_rate(fewest), wanted) < enough) {
    ++fewest;
  }
  return fewest;
}

void CostModel::add_cached(const Plan& plan, Work& work) const {
  const double mapped = mapped_rate(plan.mapped_channels);
  const double buffered = buffered_rate(plan.buffered_channels);
  const double together = mapped + buffered;
  if (cached_ <= 0 || together <= 0) {
    return;
  }
  work.cached_seconds += cached_ / joint_rate(together, link_);
  work.cpu_seconds += cached_ * (mapped * register_cpu_ + buffered * channel_cpu_) / together;
  // The last piece's copy follows its read. Of a mapping that is a window, also of a small extent:
  // what a plan costs beside its rates must not grow with the bytes, or the mix would come and go.
  const double piece = std::min(EngineShape::piece_bytes_min, cached_);
  const double last = mapped > 0 ? EngineShape::window_bytes_min : piece;
  work.start_seconds += last / link_ + EngineShape::mapped_start_seconds * mapped / together;
}

void CostModel::add_cold(const Plan& plan, Work& work) const {
  if (cold_ <= 0) {
    return;
  }
  work.start_seconds += drive_latency_ + std::min(EngineShape::piece_bytes_min, cold_) / link_;
  work.cpu_seconds += cold_ * drive_cpu_;
  if (plan.direct_io_depth > 0) {
    work.start_seconds += EngineShape::channel_start_seconds;
    work.cold_seconds += cold_ / joint_rate(drive_rate(plan.direct_io_depth, cold_), link_);
    return;
  }
  // The threads of the cached part must read the cold part too.
  if (plan.buffered_channels > 0) {
    work.cached_seconds += cold_ / joint_rate(cold_buffered_rate(plan.buffered_channels), link_);
    work.cpu_seconds += cold_ * channel_cpu_;
  } else {
    const double one = std::min(drive_, drive_ * drive_sharers_ / drive_depth_all_);
    work.cached_seconds += cold_ / joint_rate(one, link_);
    work.cpu_seconds += cold_ * (channel_cpu_ + register_cpu_);
  }
}

void CostModel::add_staged_start(const Plan& plan, Work& work) const {
  const std::uint32_t threads = plan.buffered_channels + plan.mapped_channels;
  work.start_seconds += latency_;
  work.start_seconds += threads_start_seconds(threads);
}

// The link's own time: it has nothing to do until the first pieces were read.
double CostModel::link_seconds(const Plan& plan) const {
  double first_piece_seconds = 0;
  if (sending_ && plan.buffered_channels > 0 && plan.mapped_channels == 0 && cached_ > 0) {
    const double piece = cached_ / (2.0 * EngineShape::channels_max);
    first_piece_seconds = std::min(piece, EngineShape::piece_bytes_max) / channel_;
  }
  return first_piece_seconds + bytes_ / link_;
}

PlanCost CostModel::finish(const Work& work, double least_seconds) const {
  const double seconds =
      std::max({work.cached_seconds, work.cold_seconds, least_seconds, work.cpu_seconds / cores_});
  // Starting and finishing also keep a thread awake.
  return {.seconds = work.start_seconds + seconds,
          .cpu_seconds = work.cpu_seconds + work.start_seconds};
}

PlanCost CostModel::staged(const Plan& plan) const {
  if (!sending_ && plan.direct_io_depth == 0 && plan.mapped_channels == 0) {
    return buffered_write(plan);
  }
  Work work;
  work.cpu_seconds = bytes_ * link_cpu_;
  add_staged_start(plan, work);
  add_cached(plan, work);
  add_cold(plan, work);
  return finish(work, link_seconds(plan));
}

PlanCost CostModel::buffered_write(const Plan& plan) const {
  Work work;
  const std::uint32_t channels = std::max(plan.buffered_channels, 1u);
  const double written_cpu = writes_through_mapping(channels) ? mapped_write_cpu : channel_cpu_;
  work.cpu_seconds = bytes_ * (link_cpu_ + written_cpu);
  add_staged_start(plan, work);
  const bool to_drive = !in_memory_ && bytes_ > EngineShape::absorbed_bytes;
  const double rate = to_drive ? cold_buffered_rate(channels) : buffered_rate(channels);
  work.cpu_seconds += to_drive ? bytes_ * drive_cpu_ : 0;
  work.start_seconds += std::min(EngineShape::piece_bytes_min, bytes_) / link_;
  work.cached_seconds = bytes_ / joint_rate(rate, link_);
  return finish(work, bytes_ / link_);
}

PlanCost CostModel::direct(const Plan& plan) const {
  const std::uint32_t channels = std::max(plan.direct_channels, 1u);
  Work work;
  work.start_seconds = latency_ + threads_start_seconds(channels);
  if (!host_addressable_) {
    work.start_seconds += drive_latency_;
    work.cold_seconds = bytes_ / joint_rate(drive_rate(channels, bytes_), link_);
    work.cpu_seconds = bytes_ * direct_cpu_share * drive_cpu_;
    return finish(work, 0);
  }
  // The same threads meet cached and cold chunks one after the other.
  work.cached_seconds = cached_ / std::max(buffered_rate(channels), least_rate);
  work.cpu_seconds = cached_ * channel_cpu_ + cold_ * drive_cpu_;
  if (cold_ > 0) {
    work.start_seconds += drive_latency_;
    work.cached_seconds +=
        cold_ / (in_place_ ? drive_rate(channels, cold_) : cold_buffered_rate(channels));
    work.cpu_seconds += in_place_ ? 0 : cold_ * channel_cpu_;
  }
  return finish(work, 0);
}

double CostModel::drain_seconds() const {
  return bytes_ / new_pages_ + bytes_ / link_;
}

PlanCost CostModel::parked(const Plan& plan) const {
  const std::uint32_t channels = std::max(plan.buffered_channels, 1u);
  Work work;
  add_staged_start(plan, work);
  work.start_seconds += EngineShape::channel_start_seconds + EngineShape::piece_bytes_max / link_;
  work.cpu_seconds = bytes_ * (link_cpu_ + parking_cpu_seconds_per_byte) + cached_ * channel_cpu_;
  work.cached_seconds = cached_ / std::max(buffered_rate(channels), least_rate);
  if (cold_ > 0) {
    const bool by_drive = plan.direct_io_depth > 0;
    const double rate =
        by_drive ? drive_rate(plan.direct_io_depth, cold_) : cold_buffered_rate(channels);
    work.start_seconds += drive_latency_ + EngineShape::channel_start_seconds;
    (by_drive ? work.cold_seconds : work.cached_seconds) += cold_ / rate;
    work.cpu_seconds += cold_ * (drive_cpu_ + (by_drive ? 0.0 : channel_cpu_));
  }
  const double file_seconds = std::max(work.cached_seconds, work.cold_seconds);
  if (!sending_) {
    return finish(work, drain_seconds());  // the file is written while the device is drained
  }
  work.cached_seconds = file_seconds + bytes_ / link_;
  return finish(work, 0);
}

PlanCost CostModel::cost(Route route, const Plan& plan) const {
  if (route == Route::direct) {
    return direct(plan);
  }
  return route == Route::parked ? parked(plan) : staged(plan);
}

}  // namespace hippogriff
