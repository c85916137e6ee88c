// Threads that copy lines from the page cache for a controller's threads: one copies some 6 GB/s,
// and the link to a GPU takes ten times as much.
#pragma once

#include "base/error.hpp"
#include "storage/storage.hpp"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {

struct CopyCrewOptions {
  std::size_t threads = 0;  // at most; they start when there is work
  // What is worth handing over, some 10 us of work: so many bytes, each call for as many more.
  std::size_t bytes_min = std::size_t{48} << 10;
  std::size_t bytes_a_call = std::size_t{6} << 10;
};

class FinishedCopies;

// A read of what is in the page cache, as File::read_cached_pieces has it. Stays where it is until
// it is among the finished ones.
struct CopyJob {
  File* file = nullptr;
  std::uint64_t offset = 0;
  File::PageCache expected = File::PageCache::unknown;
  std::vector<iovec> pieces;   // of memory
  std::size_t size_bytes = 0;  // of all of them
  std::uint64_t tag = 0;       // the giver's own
  FinishedCopies* finished = nullptr;
  CopyJob* with = nullptr;           // given with it, and carried out after it
  std::optional<std::size_t> count;  // the result, unless there is a failure
  Failure failure;
  CopyJob* next = nullptr;
};

// Where a giver finds its jobs again, in any order. Thread-safe.
class FinishedCopies {
 public:
  void add(CopyJob& job) {
    job.next = first_.load(std::memory_order_relaxed);
    while (!first_.compare_exchange_weak(
        job.next, &job, std::memory_order_release, std::memory_order_relaxed)) {
    }
  }

  // All that are there, linked by `next`.
  [[nodiscard]] CopyJob* take_all() {
    return first_.load(std::memory_order_relaxed) == nullptr
               ? nullptr
               : first_.exchange(nullptr, std::memory_order_acquire);
  }

 private:
  std::atomic<CopyJob*> first_{nullptr};
};

// Giving and taking are a change of a word each: a copy is as short as a few of them. There is a
// lock for who sleeps, wakes another or starts. Thread-safe. Who gave jobs must have them back
// before the crew ends.
class CopyCrew {
 public:
  explicit CopyCrew(const CopyCrewOptions& options) : options_(options), places_(options.threads) {
    threads_.reserve(options.threads);
  }

  ~CopyCrew();
  CopyCrew(const CopyCrew&) = delete;
  CopyCrew& operator=(const CopyCrew&) = delete;

  // Whether there is anybody to give jobs to.
  [[nodiscard]] bool works() const { return options_.threads != 0; }

  // Whether so many jobs, of so many bytes together, are worth giving.
  [[nodiscard]] bool wants(std::size_t jobs, std::size_t size_bytes) const {
    return works() && size_bytes + jobs * options_.bytes_a_call >= options_.bytes_min;
  }

  // A job and those `with` it, each of which is finished by itself. False where the giver is to do
  // them itself: there are no threads, or as many jobs as threads wait for them.
  [[nodiscard]] bool try_give(CopyJob& job);

 private:
  [[nodiscard]] bool has_threads();
  [[nodiscard]] std::size_t waiting() const;
  [[nodiscard]] CopyJob* take(std::size_t first);
  void serve(std::size_t first);
  [[nodiscard]] bool look_out();
  void sleep();
  static void carry_out(CopyJob& job);

  const CopyCrewOptions options_;
  std::vector<std::atomic<CopyJob*>> places_;  // of jobs that were given and not taken
  std::atomic<std::size_t> looking_{0};        // threads that look out for jobs
  std::atomic<std::size_t> sleeping_{0};
  std::atomic<std::size_t> started_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // of who sleeps, wakes or starts
  std::condition_variable given_;
  std::vector<std::thread> threads_;
};

}  // namespace hippogriff::ondemand
