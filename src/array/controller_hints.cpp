// What a controller's thread has another one ask the kernel for: to read ahead, to write back.
#include "array/controller_thread.hpp"
#include "base/machine_memory.hpp"
#include "base/quiet_thread.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr std::size_t hints_max = 8192;  // that wait, of reads

// Of what is left of a file: so much is given while as much is under way.
constexpr std::uint64_t rest_step_bytes = std::uint64_t{2} << 20;

// Kernels that follow each other are at rest for less.
constexpr auto rest_while_read = std::chrono::milliseconds(20);

}  // namespace

// Asking for it may wait, so another thread does. Without one a flush has more to do, or reads.
void ControllerThread::hint(Hint hint) {
  const std::scoped_lock lock(mutex_);
  const auto is_its = [&](const std::weak_ptr<ServedArray>& array) {
    return array.lock() == hint.array;
  };
  if (hint.rest ? std::ranges::none_of(present_, is_its)
                : hint.to_read != nullptr && hints_.size() >= hints_max) {
    return;  // whoever wants it reads it itself
  }
  const auto forget = [](const Hint& lost) {
    if (lost.array != nullptr && lost.rest) {
      lost.array->pause_rest(lost.to_read);
    }
  };
  try {
    hints_.push_back(std::move(hint));
    if (!hinter_.joinable()) {
      hinter_ = quiet_thread("hippo-hints", [this] { hint_loop(); });
    }
    hint_given_.notify_one();
  } catch (const std::exception&) {
    forget(hint);
    std::ranges::for_each(hints_, forget);
    hints_.clear();
  }
}

void ControllerThread::hint_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    hint_given_.wait(lock, [&] { return stop_ || !hints_.empty(); });
    if (stop_) {
      return;
    }
    const Hint given = std::move(hints_.front());
    hints_.pop_front();
    lock.unlock();
    if (std::optional<Hint> next = give(given)) {
      hint(std::move(*next));
    }
    lock.lock();
  }
}

// What is to be given after that, if anything.
std::optional<ControllerThread::Hint> ControllerThread::give(const Hint& hint) {
  if (hint.rest) {
    return read_rest(hint);
  }
  if (hint.to_read != nullptr) {
    hint.to_read->file->begin_read_ahead(hint.part);
  } else {
    hint.array->backing().begin_write_back(hint.part);
  }
  return std::nullopt;
}

// While the array is read, by nobody else's side: gives what comes next, and waits for what was
// given before.
std::optional<ControllerThread::Hint> ControllerThread::read_rest(const Hint& hint) {
  ServedArray& array = *hint.array;
  const bool begins = hint.part.size == 0;
  const std::uint64_t reads = array.reads();
  const auto now = std::chrono::steady_clock::now();
  const SharedDrive* const drive = hint.rest->drive;
  const RestReads seen =
      begins || reads != hint.rest->reads ? RestReads{drive, reads, now} : *hint.rest;
  if (now - seen.at > rest_while_read || (drive != nullptr && drive->has_others())) {
    array.pause_rest(hint.to_read);
    return std::nullopt;
  }
  if (begins && array.rest_bytes(hint.to_read) > machine_memory().available / 2) {
    array.end_rest(hint.to_read);
    return std::nullopt;
  }
  Range next{};
  array.take_rest(hint.to_read, rest_step_bytes, [&](const Range& run) {
    hint.to_read->file->begin_read_ahead(run);
    next = run;
  });
  try {
    if (!begins) {
      std::array<std::byte, 1> last{};
      static_cast<void>(hint.to_read->file->read(last, hint.part.end() - 1));
    }
  } catch (const std::exception&) {
    next = {};  // who wants it is told why
  }
  if (next.size == 0) {
    array.end_rest(hint.to_read);
    return std::nullopt;
  }
  return Hint{hint.array, hint.to_read, next, seen};
}

}  // namespace hippogriff::ondemand
