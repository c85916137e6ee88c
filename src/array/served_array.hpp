// An array as its controller sees it: queues, what it stands on, what went wrong.
#pragma once

#include "array/backing.hpp"
#include "array/controller_queue.hpp"
#include "array/file_windows.hpp"
#include "array/first_writes.hpp"
#include "array/found_cached.hpp"
#include "array/read_around.hpp"
#include "array/shared_drives.hpp"
#include "array/write_behind.hpp"
#include "base/error.hpp"
#include "base/range.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::ondemand {

// Counters of one array since it was opened.
struct ServedCounts {
  std::uint64_t reads = 0;
  std::uint64_t read_bytes = 0;
  std::uint64_t writes = 0;
  std::uint64_t written_bytes = 0;
  std::uint64_t flushes = 0;
  std::uint64_t failures = 0;
  std::uint64_t other_copies = 0;    // times that a read went on with another copy
  std::uint64_t in_flight = 0;       // commands that are not answered at this moment
  std::uint64_t drive_answers = 0;   // as node::ArrayCounts has them
  std::uint64_t drive_least_ns = 0;  // this and the next only where it is shown
  std::uint64_t drive_limit = 0;
};

// Thread-safe. What it points to must stay until the controller has let go of it.
class ServedArray {
 public:
  struct Options {
    Backing backing;
    std::vector<QueuePair> queues;
    Patience patience;
    std::uint32_t* sticky = nullptr;     // Cache::sticky: whether an access has failed
    std::uint64_t counter_base = 0;      // of the queues, as in initialize_shared
    std::span<std::byte> target;         // where data of commands may be: all else is refused
    bool answers_with_addresses = true;  // its threads can read the backing's memory themselves
    // Told the counters now and then, by one thread of the controller; null: nobody wants to know.
    std::function<void(const ServedCounts&)> show = nullptr;
    std::string drive;  // drive_of the backing
    // What other processes show; null: they are not known.
    SharedDrives::LookAtOthers others = nullptr;
  };

  explicit ServedArray(Options options)
      : options_(std::move(options)),
        counters_(options_.queues.size()),
        found_cached_(backing().size_bytes),
        read_around_(
            std::max<std::size_t>(backing().files.size(), 1),
            backing().in_memory() ? 0 : backing().layout().bytes_in(backing().size_bytes, 0)),
        write_behind_(backing().size_bytes),
        first_writes_(backing().size_bytes) {}

  [[nodiscard]] const Options& options() const { return options_; }

  [[nodiscard]] const Backing& backing() const { return options_.backing; }

  // Where the array's threads read a part by themselves; null: it has to be brought to them.
  [[nodiscard]] const std::byte* in_place(const Range& part) const {
    if (options_.backing.windows != nullptr) {
      return options_.backing.windows->find(part);
    }
    return options_.answers_with_addresses && part.end() <= options_.backing.memory.size()
               ? options_.backing.memory.data() + part.offset
               : nullptr;
  }

  void end(Ending why) const { options_.patience.end(why); }

  // Keeps the first, but for those before any access failed: of prefetches that nobody wanted.
  // With a status it is the array's failure now, without waiting for who is told the answer. `of`
  // is the part of the array.
  void note_failure(const Failure& failure,
                    NvmeStatus status = NvmeStatus::success,
                    const Range& of = {}) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    const std::scoped_lock lock(mutex_);
    recent_[recent_next_++ % recent_.size()] = {of, failure};
    if (!first_failure_ || system_ref<std::uint32_t>(*options_.sticky).load(relaxed) == 0) {
      first_failure_ = failure;
    }
    if (status != NvmeStatus::success) {
      set_once(*options_.sticky, static_cast<std::uint32_t>(status));
    }
  }

  [[nodiscard]] FoundCached& found_cached() { return found_cached_; }

  // A gather of so many lines is about to begin: see ReadForecast. Nothing is read around elsewhere
  // than in files that come through the page cache.
  void begin_gather(std::uint64_t lines) noexcept {
    if (!backing().in_memory() && !backing().is_direct) {
      read_around_.forecast().begin(lines, reads());
    }
  }

  // Where it is known that it has ended, and no other is under way, as far as is known.
  void end_gather() noexcept { read_around_.forecast().end(); }

  // A part of a file is about to be read from its drive: the part, if any, that should be with it.
  [[nodiscard]] std::optional<Range> note_cold(const FilePart& part) {
    const auto file = number_of(part.file);
    const Range its{part.offset - backing().file_offset, part.size_bytes};
    auto around = read_around_.note(file, its, read_around_.forecast().is_told() ? reads() : 0);
    if (around) {
      around->offset += backing().file_offset;
    }
    return around;
  }

  // After that gave a block: gives what of the next `bytes` of the file is to be read with it.
  template <typename Give>
  void take_ahead(const FilePart& part, const Range& block, std::uint64_t bytes, Give&& give) {
    const auto file = number_of(part.file);
    const std::uint64_t begin = backing().file_offset;
    read_around_.take_ahead(file, {block.offset - begin, block.size}, bytes, [&](const Range& run) {
      give(Range{run.offset + begin, run.size});
    });
  }

  // Whether who asks is to read the rest of the part's file, until pause_rest() or end_rest(). Not
  // of copies: each is asked for some of the array only.
  [[nodiscard]] bool begin_rest(const FilePart& part) noexcept {
    return backing().layout().copies() == 1 && read_around_.rest().begin(number_of(part.file));
  }

  void pause_rest(const BackingFile* file) noexcept { read_around_.rest().pause(number_of(file)); }

  void end_rest(const BackingFile* file) noexcept { read_around_.rest().end(number_of(file)); }

  // Of all files.
  [[nodiscard]] std::uint64_t rest_bytes() const noexcept {
    return read_around_.rest_bytes(backing().files.size());
  }

  // For who reads the rest: gives what of the file comes next, so many bytes; nothing at its end.
  template <typename Give>
  void take_rest(const BackingFile* file, std::uint64_t bytes, Give&& give) {
    const std::uint64_t its = backing().layout().bytes_in(backing().size_bytes, number_of(file));
    read_around_.take_rest(number_of(file), bytes, [&](const Range& run) {
      if (run.offset < its) {  // a stripe's file may have less of the array than others
        give(Range{run.offset + backing().file_offset, std::min(run.size, its - run.offset)});
      }
    });
  }

  // Writes through the page cache take turns at a file's lock: more of them at once are no faster,
  // and what waits here may be joined by what lies beside it.
  [[nodiscard]] bool may_write() const {
    return writes_.load(std::memory_order_relaxed) < writes_a_file * backing().files.size();
  }

  void begin_write() { writes_.fetch_add(1, std::memory_order_relaxed); }

  void end_write() { writes_.fetch_sub(1, std::memory_order_relaxed); }

  // Bytes are in the files: the part, if any, that should go on to the drive.
  [[nodiscard]] std::optional<Range> note_written(const Range& part) {
    return write_behind_.note_written(part);
  }

  // A part of a new array is about to be written past the page cache.
  void note_first_write(const Range& part) {
    const auto region = first_writes_.note(part);
    if (region && backing().allocate(*region, first_writes_.left_bytes())) {
      first_writes_.note_allocated(*region);
    }
  }

  // A copy of the array could not be read, and another one is asked. Tells of the first on stderr.
  void note_other_copy(std::uint64_t copy, const Failure& failure) {
    failed_copies_.fetch_or(std::uint64_t{1} << copy, std::memory_order_relaxed);
    if (other_copies_.fetch_add(1, std::memory_order_relaxed) == 0) {
      std::fprintf(stderr,
                   "hippogriff: %s; array %s goes on with other copies\n",
                   failure.message().c_str(),
                   backing().name.c_str());
    }
  }

  // A line was not written to a copy: a failure of the array, each time that it has been cleared.
  void note_left_out(std::uint64_t copy, const Failure& failure) {
    const std::uint64_t bit = std::uint64_t{1} << copy;
    failed_copies_.fetch_or(bit, std::memory_order_relaxed);
    outdated_.fetch_or(bit, std::memory_order_relaxed);
    if ((left_out_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
      note_failure(failure, NvmeStatus::write_fault);
    }
  }

  // The copy that a read of these bytes asks first: not one that has failed, which may take a
  // drive's timeout each time, while there are others.
  [[nodiscard]] std::uint64_t copy_for(std::uint64_t offset) const {
    const std::uint64_t copies = backing().layout().copies();
    if (copies == 1) {
      return 0;
    }
    std::uint64_t first = spread(offset) % copies;
    for (std::uint64_t i = 0; i < copies; ++i) {
      if (!copy_failed((first + i) % copies)) {
        return (first + i) % copies;
      }
    }
    while (is_outdated(first)) {  // never all of them
      first = (first + 1) % copies;
    }
    return first;
  }

  // Whether a copy lacks what was written to the others: nobody may read it.
  [[nodiscard]] bool is_outdated(std::uint64_t copy) const {
    return (outdated_.load(std::memory_order_relaxed) >> copy & 1U) != 0;
  }

  [[nodiscard]] bool copy_failed(std::uint64_t copy) const {
    return (failed_copies_.load(std::memory_order_relaxed) >> copy & 1U) != 0;
  }

  [[nodiscard]] std::optional<Failure> first_failure() const {
    const std::scoped_lock lock(mutex_);
    return first_failure_;
  }

  // The latest of which the part of the array is one that is wanted; else the latest of all.
  [[nodiscard]] std::optional<Failure> recent_failure(
      const std::function<bool(const Range&)>& is_wanted) const {
    const std::scoped_lock lock(mutex_);
    const std::size_t known = std::min(recent_next_, recent_.size());
    for (std::size_t i = 1; i <= known; ++i) {
      const Recent& recent = recent_[(recent_next_ - i) % recent_.size()];
      if (is_wanted(recent.of)) {
        return recent.failure;
      }
    }
    return known == 0 ? std::nullopt
                      : std::optional(recent_[(recent_next_ - 1) % recent_.size()].failure);
  }

  // Has the storage keep what was written. One failure is for good: what the kernel could not write
  // it may have dropped, and whoever asks again is told that all is well.
  void sync() {
    const std::scoped_lock alone(syncing_);
    if (const auto failure = sync_failure()) {
      throw Error(*failure);
    }
    try {
      backing().sync();
    } catch (...) {
      Failure failure = current_failure();
      failure.detail =
          "what was written since the last flush that succeeded may be lost, and no "
          "flush writes it again: open the array again and write that again";
      const std::scoped_lock lock(mutex_);
      sync_failure_ = failure;
      throw Error(failure);
    }
  }

  // What all flushes fail with from now on; nothing clears it.
  [[nodiscard]] std::optional<Failure> sync_failure() const {
    const std::scoped_lock lock(mutex_);
    return sync_failure_;
  }

  void clear_failure() {
    const std::scoped_lock lock(mutex_);
    recent_next_ = 0;
    first_failure_.reset();
    left_out_.store(0, std::memory_order_relaxed);
    system_ref<std::uint32_t>(*options_.sticky).store(0, relaxed);
  }

  // What one queue's thread counts, and any may read.
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> reads{0};
    std::atomic<std::uint64_t> read_bytes{0};
    std::atomic<std::uint64_t> writes{0};
    std::atomic<std::uint64_t> written_bytes{0};
    std::atomic<std::uint64_t> flushes{0};
    std::atomic<std::uint64_t> failed{0};
    std::atomic<std::uint64_t> drive_answers{0};
  };

  // By the thread that serves the queue alone.
  void count(std::size_t queue, Opcode opcode, std::uint64_t bytes) {
    Counter& counter = counters_[queue];
    switch (opcode) {
      case Opcode::read:
        count_reads(queue, 1, bytes);
        break;
      case Opcode::write:
        add(counter.writes, 1);
        add(counter.written_bytes, bytes);
        break;
      case Opcode::flush:
        add(counter.flushes, 1);
        break;
    }
  }

  void count_reads(std::size_t queue, std::uint64_t reads, std::uint64_t bytes) {
    Counter& counter = counters_[queue];
    add(counter.reads, reads);
    add(counter.read_bytes, bytes);
  }

  void count_failed(std::size_t queue) {
    counters_[queue].failed.fetch_add(1, std::memory_order_relaxed);
  }

  void count_drive_answer(std::size_t queue) { add(counters_[queue].drive_answers, 1); }

  // `drive` is the array's; null: it has none.
  void show(const SharedDrive* drive) const {
    if (options_.show) {
      ServedCounts counted = counts();
      if (drive != nullptr) {
        const std::uint64_t share = drive->share.load(std::memory_order_relaxed);
        counted.drive_least_ns = drive->least_ns.load(std::memory_order_relaxed);
        counted.drive_limit = share < drive_share_max ? share : 0;
      }
      options_.show(counted);
    }
  }

  [[nodiscard]] ServedCounts counts() const {
    ServedCounts sum;
    sum.reads = reads();
    for (const Counter& counter : counters_) {
      sum.read_bytes += counter.read_bytes.load(std::memory_order_relaxed);
      sum.writes += counter.writes.load(std::memory_order_relaxed);
      sum.written_bytes += counter.written_bytes.load(std::memory_order_relaxed);
      sum.flushes += counter.flushes.load(std::memory_order_relaxed);
      sum.drive_answers += counter.drive_answers.load(std::memory_order_relaxed);
    }
    for (std::size_t queue = 0; queue < counters_.size(); ++queue) {
      sum.in_flight += in_flight(queue);
    }
    sum.failures = failures_.load(std::memory_order_relaxed);
    sum.other_copies = other_copies_.load(std::memory_order_relaxed);
    return sum;
  }

  [[nodiscard]] std::uint64_t reads() const noexcept {
    std::uint64_t sum = 0;
    for (const Counter& counter : counters_) {
      sum += counter.reads.load(std::memory_order_relaxed);
    }
    return sum;
  }

 private:
  [[nodiscard]] std::size_t number_of(const BackingFile* file) const {
    return static_cast<std::size_t>(file - backing().files.data());
  }

  struct Recent {
    Range of;
    Failure failure;
  };

  static void add(std::atomic<std::uint64_t>& counter, std::uint64_t number) {
    counter.store(counter.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
  }

  // What the doorbell tells of and is not answered. Answers that come meanwhile may be missed.
  [[nodiscard]] std::uint64_t in_flight(std::size_t queue) const {
    const Counter& counter = counters_[queue];
    const QueuePair& pair = options_.queues[queue];
    const std::uint64_t answered = counter.reads.load(std::memory_order_relaxed) +
                                   counter.writes.load(std::memory_order_relaxed) +
                                   counter.flushes.load(std::memory_order_relaxed) +
                                   counter.failed.load(std::memory_order_relaxed);
    const std::uint64_t told =
        system_ref<std::uint32_t>(pair.bells().doorbells.submission_tail).load(relaxed);
    return (told - options_.counter_base - answered) & (pair.depth - 1);
  }

  Options options_;
  std::vector<Counter> counters_;
  FoundCached found_cached_;
  ReadAround read_around_;
  WriteBehind write_behind_;
  FirstWrites first_writes_;
  static constexpr std::size_t writes_a_file = 4;
  std::atomic<std::size_t> writes_{0};  // under way, through the page cache
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::uint64_t> other_copies_{0};
  std::atomic<std::uint64_t> failed_copies_{0};  // a bit each
  std::atomic<std::uint64_t> left_out_{0};       // and of those that a failure has told of
  std::atomic<std::uint64_t> outdated_{0};       // and of those that were ever left out
  std::mutex syncing_;  // or one would be told the failure, and another success
  mutable std::mutex mutex_;
  std::optional<Failure> first_failure_;
  std::optional<Failure> sync_failure_;
  std::array<Recent, 32> recent_;  // the last ones, in turn
  std::size_t recent_next_ = 0;
};

}  // namespace hippogriff::ondemand
