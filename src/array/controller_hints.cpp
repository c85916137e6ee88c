// What a controller's thread has another one ask the kernel for: to read ahead, to write back.
#include "array/controller_thread.hpp"
#include "base/machine_memory.hpp"
#include "base/quiet_thread.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

namespace hippogriff::ondemand {

namespace {

constexpr std::size_t hints_max = 8192;  // that wait, of reads

// Of what is left of a file: so much is given while as much is under way.
constexpr std::uint64_t rest_step_bytes = std::uint64_t{2} << 20;

// After so many the machine's memory is looked at again.
constexpr std::uint32_t rest_steps_between = 128;

// Kernels that follow each other are at rest for less.
constexpr auto rest_while_read = std::chrono::milliseconds(20);

// Until it is in the page cache: some of it may be there before the rest is.
void wait_for(const BackingFile& file, const Range& part) {
  std::array<std::byte, std::size_t{64} << 10> piece{};
  for (std::uint64_t done = 0; done < part.size; done += piece.size()) {
    const std::span its = std::span(piece).first(std::min(piece.size(), part.size - done));
    static_cast<void>(file.file->read(its, part.offset + done));
  }
}

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
    Hint given = std::move(hints_.front());
    hints_.pop_front();
    hinting_ = given.array.get();
    lock.unlock();
    if (std::optional<Hint> next = give(given)) {
      hint(std::move(*next));
    }
    given = {};  // an array may end with it
    lock.lock();
    hinting_ = nullptr;
    settled_.notify_all();
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

// While the array is read, and no array of another process is at its drive: gives what comes next,
// and waits for what was given before.
std::optional<ControllerThread::Hint> ControllerThread::read_rest(const Hint& hint) {
  ServedArray& array = *hint.array;
  const bool begins = hint.part.size == 0;
  const auto now = std::chrono::steady_clock::now();
  RestReads seen = *hint.rest;
  if (const std::uint64_t reads = array.reads(); begins || reads != seen.reads) {
    seen.reads = reads;
    seen.at = now;
  }
  if (now - seen.at > rest_while_read || (seen.drive != nullptr && seen.drive->has_others())) {
    array.pause_rest(hint.to_read);
    return std::nullopt;
  }
  Range next{};
  try {
    if (seen.steps++ % rest_steps_between == 0 &&
        array.rest_bytes() > machine_memory().available / 2) {
      array.end_rest(hint.to_read);
      return std::nullopt;
    }
    array.take_rest(hint.to_read, rest_step_bytes, [&](const Range& run) {
      hint.to_read->file->begin_read_ahead(run);
      next = run;
    });
    wait_for(*hint.to_read, hint.part);
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
