// Counts what this process has answered, and sets what each of its threads may have.
#include "array/shared_drives.hpp"

#include "storage/drives.hpp"

#include <algorithm>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr auto relaxed_order = std::memory_order_relaxed;
constexpr std::uint64_t timed_min = 16;  // fewer say little

// When others come everybody has the least for so many looks, so that what a request takes which
// nobody is in the way of is seen also where the drive has been crowded from the first one on. Who
// comes and goes must not hold others back each time: they pause again after so many looks alone.
constexpr std::uint64_t calm_looks = 3;
constexpr std::uint64_t forgotten_looks = 100;

}  // namespace

void SharedDrive::note_mean(std::uint64_t mean_ns) {
  std::uint64_t least = least_ns.load(relaxed_order);
  while ((least == 0 || mean_ns < least) &&
         !least_ns.compare_exchange_weak(least, mean_ns, relaxed_order)) {
  }
}

void ThreadDrive::end(std::uint64_t bytes, std::uint64_t request_ns) {
  --in_flight;
  ++answers;
  answered_bytes += bytes;
  ++timed;
  took_ns += request_ns;
}

void ThreadDrive::note_answers() {
  if (answers != 0) {
    shared->answers.fetch_add(std::exchange(answers, 0), relaxed_order);
    shared->answered_bytes.fetch_add(std::exchange(answered_bytes, 0), relaxed_order);
  }
}

void ThreadDrive::note_mean() {
  if (timed >= timed_min) {
    shared->note_mean(std::max<std::uint64_t>(took_ns / timed, 1));
  }
  timed = 0;
  took_ns = 0;
}

SharedDrive& SharedDrives::drive(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  const auto [entry, is_new] = drives_.try_emplace(name);
  SharedDrive& drive = entry->second.drive;
  if (is_new) {
    drive.each_thread_wants = std::max<std::uint64_t>(requests_wanted_(name) / threads_, 1);
  }
  return drive;
}

std::uint64_t SharedDrives::requests_wanted_by(const std::string& drive) {
  const auto facts = drive_facts(drive);
  const std::uint64_t kept =
      facts ? std::uint64_t{facts->request_count_max} * facts->request_queue_count : 0;
  return kept == 0 ? drive_share_max : std::min(kept / 2, drive_share_max);
}

void SharedDrives::look(std::int64_t now_ns, const LookAtOthers& others) {
  std::int64_t looked_ns = looked_ns_.load(relaxed_order);
  if (now_ns - looked_ns < look_interval_ns ||
      !looked_ns_.compare_exchange_strong(looked_ns, now_ns, relaxed_order)) {
    return;
  }
  const std::vector<node::SeenArray> seen = others();
  const std::scoped_lock lock(mutex_);
  if (now_ns - shared_ns_ < look_interval_ns / 2) {
    return;  // a thread that came later was quicker
  }
  for (auto& [name, watched] : drives_) {
    share(watched, name, seen, now_ns);
  }
  shared_ns_ = now_ns;
}

void SharedDrives::share(Watched& watched,
                         std::string_view name,
                         std::span<const node::SeenArray> others,
                         std::int64_t now_ns) const {
  const std::uint64_t answers = watched.drive.answers.load(relaxed_order);
  const std::uint64_t answered_bytes = watched.drive.answered_bytes.load(relaxed_order);
  const std::uint64_t since = answers - std::exchange(watched.answers, answers);
  const std::uint64_t bytes =
      answered_bytes - std::exchange(watched.answered_bytes, answered_bytes);
  if (since != 0) {
    watched.request_bytes = std::max<std::uint64_t>(bytes / since, 1);
  }
  DriveCrowd crowd = watched.others.look(others, name, watched.request_bytes, now_ns);
  const auto took_ns = static_cast<double>(std::max<std::int64_t>(now_ns - shared_ns_, 1));
  crowd.answers_per_second += static_cast<double>(since) * 1e9 / took_ns;
  const std::uint64_t own_ns = watched.drive.least_ns.load(relaxed_order);
  if (own_ns != 0) {
    crowd.least_ns = crowd.least_ns == 0 ? own_ns : std::min(crowd.least_ns, own_ns);
  }
  if (crowd.others.empty()) {
    if (++watched.looks_alone >= forgotten_looks) {
      watched.crowded_looks = 0;
    }
  } else {
    watched.looks_alone = 0;
    ++watched.crowded_looks;
  }
  const bool calm = !crowd.others.empty() && watched.crowded_looks <= calm_looks;
  const std::uint64_t share = calm ? drive_share_min : drive_share(crowd);
  watched.drive.share.store(share, relaxed_order);
  watched.drive.each_thread.store((share + threads_ - 1) / threads_, relaxed_order);
}

}  // namespace hippogriff::ondemand
