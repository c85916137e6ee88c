// What a controller's thread has at drives that other processes use as well.
#include "array/controller_thread.hpp"
#include "node/attachment.hpp"

#include <algorithm>

namespace hippogriff::ondemand {

ThreadDrive* ControllerThread::thread_drive(const std::string& name) {
  if (name.empty()) {
    return nullptr;
  }
  ThreadDrive& drive = thread_drives_[name];
  drive.shared = &drives_.drive(name);
  return &drive;
}

// Changes in mode c are in a file that may be on another drive.
void ControllerThread::note_submitted(Pending& pending) {
  if (pending.locks_file) {
    pending.served->array->begin_write();
  }
  if (ThreadDrive* const drive = pending.in_overlay ? nullptr : pending.served->drive) {
    pending.submitted_ns = node::monotonic_ns();
    ++drive->in_flight;
  }
}

void ControllerThread::note_answered(const Pending& pending,
                                     std::int64_t result,
                                     std::int64_t now_ns) {
  if (pending.locks_file) {
    pending.served->array->end_write();
  }
  if (ThreadDrive* const drive = pending.in_overlay ? nullptr : pending.served->drive) {
    drive->end(
        static_cast<std::uint64_t>(std::max<std::int64_t>(result, 0)),
        static_cast<std::uint64_t>(std::max<std::int64_t>(now_ns - pending.submitted_ns, 0)));
    pending.served->array->count_drive_answer(pending.served->index);
  }
}

// Whoever's array comes first looks for all: what others show is the same for each.
void ControllerThread::show_drives() {
  for (auto& entry : thread_drives_) {
    entry.second.note_mean();
  }
  for (const auto& served : served_) {
    const ServedArray::Options& options = served->array->options();
    if (served->drive != nullptr && options.others) {
      drives_.look(node::monotonic_ns(), options.others);
      return;
    }
  }
}

}  // namespace hippogriff::ondemand
