// What is read ahead for a caller, asked and unasked.
#include "base/machine_memory.hpp"
#include "device/cuda_device.hpp"
#include "transfer/caller_checks.hpp"
#include "transfer/cost_model.hpp"
#include "transfer/depth_controller.hpp"
#include "transfer/direct_queue.hpp"
#include "transfer/outlook.hpp"
#include "transfer/runtime.hpp"

#include <algorithm>
#include <string>

namespace hippogriff {

namespace {

// A context is made before a drive has read more.
constexpr std::uint64_t first_read_bytes_max = std::uint64_t{1} << 30;

}  // namespace

bool Runtime::opens_gpu(const Submission& submission) {
  const bool allocates = submission.direction == Direction::send && submission.address.is_null() &&
                         submission.destinations.empty();
  const bool free_route = submission.route == Route::automatic && settings_.routes.empty();
  if (fixed_devices_ || !allocates || !free_route ||
      (submission.flags & HIPPOGRIFF_HOST_MEMORY) != 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const std::string name = full_name_locked(submission.device);
  // Of a context that the program has made the device is there in no time.
  return cuda_index(name).has_value() && !devices_.contains(name) && !has_cuda_context();
}

bool Runtime::drive_is_needed(const File& file) const {
  const std::string drive = drive_key(file.facts());
  const auto needs_it = [&](const auto& entry) {
    const Active& active = entry.second;
    const auto transfer = active.transfer.lock();
    return transfer != nullptr && transfer->gate_open && active.drive == drive;
  };
  {
    const std::lock_guard lock(traffic_mutex_);
    if (!drive.empty() && std::ranges::any_of(active_, needs_it)) {
      return true;
    }
  }
  return others_need_drive(file);
}

void Runtime::prefetch(const Submission& submission) {
  checked_end(submission, submission.size);
  const std::shared_ptr<File> file = open_for_send(submission, *storage_);
  prefetcher_.begin(file, send_extent(submission, *file));
}

std::uint32_t Runtime::first_reads_allowed(const File& file) const {
  if (drive_is_needed(file)) {
    return 0;
  }
  const TransferWay way{.drive = drive_key(file.facts())};
  TransferLoad load;
  if (const auto node = share()) {
    add_others(load, node->transfers_of_others(), way, node::monotonic_ns());
  }
  const DriveCalibration drive = calibration_.get("", way.drive).drive;
  return std::min(DirectQueue::reads_per_depth * drive_depth_share(drive.depth, load),
                  std::max(settings_.channels_max, DepthController::depth_min));
}

// Of all that read so at once each stops when it has a quarter of what is left of memory: none is
// without any. The others on the node see it as a send that waits for its device.
FirstRead::ReadsAllowed Runtime::show_first_read(const std::shared_ptr<File>& file, Range extent) {
  constexpr std::uint64_t looked_at_again_bytes = std::uint64_t{64} << 20;

  struct Seen {
    std::shared_ptr<node::TransferNotice> notice;
    node::ShownTransfer shown;
    std::uint64_t look_bytes = looked_at_again_bytes;
    bool has_room = true;
  };

  Seen seen{.notice = notice_of(extent.size),
            .shown = {.drive = drive_key(file->facts()),
                      .phase = node::TransferPhase::waiting,
                      .bytes_total = extent.size,
                      .started_ns = node::monotonic_ns()}};
  return [this, file, seen](std::uint64_t read_bytes) mutable {
    if (read_bytes >= seen.look_bytes) {
      seen.has_room = read_bytes <= machine_memory().available / 4;
      seen.look_bytes = read_bytes + looked_at_again_bytes;
    }
    const std::uint32_t allowed = seen.has_room ? first_reads_allowed(*file) : 0;
    if (seen.notice != nullptr) {
      seen.shown.phase = allowed > 0 ? node::TransferPhase::parking : node::TransferPhase::waiting;
      seen.shown.drive_requests = static_cast<std::uint16_t>(allowed);
      seen.shown.bytes_done = read_bytes;
      seen.notice->show(seen.shown);
    }
    return allowed;
  };
}

std::shared_ptr<FirstRead> Runtime::first_read(const Submission& submission) noexcept {
  try {
    if (submission.host_memory_bytes > 0) {
      return nullptr;
    }
    const std::shared_ptr<File> file = open_for_send(submission, *storage_);
    const Range extent = send_extent(submission, *file);
    const std::uint64_t room =
        std::min({first_read_bytes_max, settings_.parking_bytes, machine_memory().available / 4});
    if (first_read_runs_.exchange(true)) {
      return nullptr;  // Of the threads that want a context, one reads as fast as all.
    }
    const std::shared_ptr<void> running(nullptr, [this](void*) { first_read_runs_ = false; });
    std::unique_ptr<FirstRead> read =
        FirstRead::begin(storage_, file, extent, room, show_first_read(file, extent));
    if (read == nullptr) {
      return nullptr;
    }
    return {read.release(), [running](FirstRead* ended) { delete ended; }};
  } catch (...) {
    return nullptr;  // The send tells what is wrong, once there is a device.
  }
}

std::shared_ptr<const void> Runtime::prefetch_for(const Submission& submission) noexcept {
  try {
    const std::shared_ptr<File> file = open_for_send(submission, *storage_);
    const Range extent = send_extent(submission, *file);
    prefetcher_.begin(file, extent);
    const auto ends = [this, file, extent](const void*) { prefetcher_.sent(*file, extent); };
    return {file.get(), ends};
  } catch (...) {
    return nullptr;  // The send tells what is wrong, once there is a device.
  }
}

}  // namespace hippogriff
