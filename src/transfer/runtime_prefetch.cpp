// What is read ahead for a caller, asked and unasked.
#include "device/cuda_device.hpp"
#include "transfer/caller_checks.hpp"
#include "transfer/outlook.hpp"
#include "transfer/runtime.hpp"

#include <algorithm>
#include <string>

namespace hippogriff {

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
