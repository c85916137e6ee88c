// Keeps what was measured, corrects it by what transfers see, and keeps it in a file between runs.
#include "transfer/calibration.hpp"

#include "base/error.hpp"
#include "transfer/calibration_disk.hpp"
#include "transfer/observation.hpp"

#include <optional>
#include <utility>

namespace hippogriff {
namespace {

LinkCalibration default_link(std::string_view device) {
  if (device.starts_with("host")) {
    // Copies by one thread of the stream; registering only touches the pages.
    return {.to_device = {8e9, 125e-12},
            .to_host = {8e9, 125e-12},
            .latency_seconds = 5e-6,
            .register_pages = {40e9, 25e-12},
            .register_shared_memory = {40e9, 25e-12},
            .register_new_pages = {1.2e9, 850e-12}};
  }
  return {.to_device = {54e9, 1e-12},
          .to_host = {52e9, 1e-12},
          .latency_seconds = 7e-6,
          .register_pages = {30e9, 36e-12},
          .register_shared_memory = {10e9, 95e-12},
          .register_new_pages = {1.4e9, 630e-12}};
}

DriveCalibration default_drive(std::string_view drive) {
  if (drive.starts_with("nvme")) {
    return {.direct_read = {3e9, 40e-12},
            .direct_write = {2e9, 50e-12},
            .latency_seconds = 80e-6,
            .depth = 4};
  }
  return {.direct_read = {1.8e9, 45e-12},
          .direct_write = {1.8e9, 55e-12},
          .latency_seconds = 100e-6,
          .depth = 2};
}

HostCalibration default_host() {
  return {.cached_read_per_channel = {6.2e9, 165e-12},
          .cached_read_max = 70e9,
          // Writers of one file take turns: more threads bring no more.
          .cached_write_per_channel = {3e9, 335e-12},
          .cached_write_max = 3e9};
}

bool is_measured(const Rate& rate) {
  return rate.bytes_per_second != 0;
}

bool is_measured(double figure) {
  return figure != 0;
}

template <typename Figure>
void keep_unmeasured(Figure& figure, const Figure& known) {
  if (!is_measured(figure)) {
    figure = known;
  }
}

template <typename... Each>
Figures measured_of(const Each&... each) {
  Figures figures = 0;
  Figures bit = 1;
  ((figures |= is_measured(each) ? bit : 0, bit <<= 1U), ...);
  return figures;
}

Figures measured_of(const LinkCalibration& link) {
  return measured_of(link.to_device,
                     link.to_host,
                     link.latency_seconds,
                     link.register_pages,
                     link.register_shared_memory,
                     link.register_new_pages);
}

Figures measured_of(const DriveCalibration& drive) {
  return measured_of(drive.direct_read, drive.direct_write, drive.latency_seconds, drive.depth);
}

Figures measured_of(const HostCalibration& host) {
  return measured_of(host.cached_read_per_channel,
                     host.cached_read_max,
                     host.cached_write_per_channel,
                     host.cached_write_max);
}

// A calibration that another process has made meanwhile is worth more than what we saw in passing.
template <typename Entries>
void take_unless_measured(Entries& merged, const Entries& ours, const std::string& name) {
  const auto there = merged.find(name);
  if (there == merged.end() || !there->second.measured || ours.at(name).measured) {
    merged[name] = ours.at(name);
  }
}

Calibration with_known(Calibration calibration, const Calibration& known) {
  calibration.link.measured_figures = measured_of(calibration.link) | known.link.measured_figures;
  calibration.drive.measured_figures =
      measured_of(calibration.drive) | known.drive.measured_figures;
  keep_unmeasured(calibration.link.to_device, known.link.to_device);
  keep_unmeasured(calibration.link.to_host, known.link.to_host);
  keep_unmeasured(calibration.link.register_pages, known.link.register_pages);
  keep_unmeasured(calibration.link.register_shared_memory, known.link.register_shared_memory);
  keep_unmeasured(calibration.link.register_new_pages, known.link.register_new_pages);
  keep_unmeasured(calibration.link.latency_seconds, known.link.latency_seconds);
  keep_unmeasured(calibration.drive.latency_seconds, known.drive.latency_seconds);
  keep_unmeasured(calibration.drive.depth, known.drive.depth);
  keep_unmeasured(calibration.drive.direct_read, known.drive.direct_read);
  keep_unmeasured(calibration.drive.direct_write, known.drive.direct_write);
  keep_unmeasured(calibration.host.cached_read_per_channel, known.host.cached_read_per_channel);
  keep_unmeasured(calibration.host.cached_write_per_channel, known.host.cached_write_per_channel);
  keep_unmeasured(calibration.host.cached_read_max, known.host.cached_read_max);
  keep_unmeasured(calibration.host.cached_write_max, known.host.cached_write_max);
  calibration.link.measured = true;
  calibration.drive.measured = true;
  return calibration;
}

template <typename Entry>
Entry known_or(const std::map<std::string, Entry>& entries,
               const std::string& name,
               const Entry& otherwise) {
  const auto found = entries.find(name);
  return found == entries.end() ? otherwise : found->second;
}

// Names come from the system, and the file must stay readable.
bool may_enter(const CalibrationFile& known, const std::string& device, const std::string& drive) {
  CalibrationFile with_both = known;
  with_both.links.try_emplace(device, default_link(device));
  with_both.drives.try_emplace(drive, default_drive(drive));
  try {
    static_cast<void>(format_calibration(with_both));
    return true;
  } catch (const Error&) {
    return false;
  }
}

CalibrationFile nothing_known() {
  CalibrationFile known;
  known.host = default_host();
  return known;
}

}  // namespace

Calibration default_calibration(std::string_view device, std::string_view drive) {
  return {.link = default_link(device), .drive = default_drive(drive), .host = default_host()};
}

CalibrationStore::CalibrationStore(std::filesystem::path file) : file_(std::move(file)) {
  known_ = load_calibration(file_).value_or(nothing_known());
}

Calibration CalibrationStore::get_locked(const std::string& device,
                                         const std::string& drive) const {
  return {.link = known_or(known_.links, device, default_link(device)),
          .drive = known_or(known_.drives, drive, default_drive(drive)),
          .host = known_.host};
}

Calibration CalibrationStore::get(const std::string& device, const std::string& drive) const {
  const std::lock_guard lock(mutex_);
  return get_locked(device, drive);
}

Figures CalibrationStore::host_measured_figures() const {
  const std::lock_guard lock(mutex_);
  return known_.host_measured_figures;
}

bool CalibrationStore::measured(const std::string& device, const std::string& drive) const {
  const std::lock_guard lock(mutex_);
  const auto link = known_.links.find(device);
  const auto found = known_.drives.find(drive);
  return link != known_.links.end() && link->second.measured && found != known_.drives.end() &&
         found->second.measured;
}

void CalibrationStore::put(const std::string& device,
                           const std::string& drive,
                           const Calibration& calibration) {
  const std::lock_guard lock(mutex_);
  const Calibration whole = with_known(calibration, get_locked(device, drive));
  CalibrationFile changed = known_;
  changed.links[device] = whole.link;
  changed.drives[drive] = whole.drive;
  changed.host = whole.host;
  changed.host_measured = true;
  changed.host_measured_figures |= measured_of(calibration.host);
  static_cast<void>(format_calibration(changed));
  known_ = std::move(changed);
  changed_links_.insert(device);
  changed_drives_.insert(drive);
  host_changed_ = true;
}

void CalibrationStore::observe(const std::string& device,
                               const std::string& drive,
                               const Observation& observation) {
  const std::lock_guard lock(mutex_);
  const Calibration before = get_locked(device, drive);
  Calibration seen = before;
  learn(seen, observation);
  // Asked only where a name would be new: the answer takes longer than a small transfer.
  const bool new_link = seen.link != before.link && !known_.links.contains(device);
  const bool new_drive = seen.drive != before.drive && !known_.drives.contains(drive);
  if ((new_link || new_drive) && !may_enter(known_, device, drive)) {
    return;
  }
  store_seen(device, drive, seen);
}

void CalibrationStore::store_seen(const std::string& device,
                                  const std::string& drive,
                                  const Calibration& seen) {
  const Calibration before = get_locked(device, drive);
  if (seen.host != before.host) {
    known_.host = seen.host;
    host_changed_ = true;
  }
  if (seen.link != before.link) {
    known_.links[device] = seen.link;
    changed_links_.insert(device);
  }
  if (seen.drive != before.drive) {
    known_.drives[drive] = seen.drive;
    changed_drives_.insert(drive);
  }
}

void CalibrationStore::save() {
  const std::lock_guard saving(saving_);
  CalibrationFile ours;
  std::set<std::string> links;
  std::set<std::string> drives;
  bool host = false;
  {
    const std::lock_guard lock(mutex_);
    ours = known_;
    links.swap(changed_links_);
    drives.swap(changed_drives_);
    host = std::exchange(host_changed_, false);
  }
  if (file_.empty() || (links.empty() && drives.empty() && !host)) {
    return;
  }
  try {
    // Other processes may have measured what we have not.
    CalibrationFile merged = load_calibration(file_).value_or(ours);
    for (const std::string& name : links) {
      take_unless_measured(merged.links, ours.links, name);
    }
    for (const std::string& name : drives) {
      take_unless_measured(merged.drives, ours.drives, name);
    }
    if (host && (ours.host_measured || !merged.host_measured)) {
      merged.host = ours.host;
      merged.host_measured = ours.host_measured;
      merged.host_measured_figures = ours.host_measured_figures;
    }
    save_calibration(file_, merged);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    changed_links_.merge(links);
    changed_drives_.merge(drives);
    host_changed_ = host_changed_ || host;
    throw;
  }
}

}  // namespace hippogriff
