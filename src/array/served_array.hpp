// An array as its controller sees it: queues, what it stands on, what went wrong.
#pragma once

#include "array/backing.hpp"
#include "array/controller_queue.hpp"
#include "base/error.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
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
};

// Thread-safe. What it points to must stay until the controller has let go of it.
class ServedArray {
 public:
  struct Options {
    Backing backing;
    std::vector<QueuePair> queues;
    Patience patience;
    std::uint64_t counter_base = 0;      // of the queues, as in initialize_shared
    std::span<std::byte> target;         // where data of commands may be: all else is refused
    bool answers_with_addresses = true;  // its threads can read the backing's memory themselves
  };

  explicit ServedArray(Options options) : options_(std::move(options)) {}

  [[nodiscard]] const Options& options() const { return options_; }

  [[nodiscard]] const Backing& backing() const { return options_.backing; }

  void end(Ending why) { options_.patience.end(why); }

  // Keeps the first.
  void note_failure(const Failure& failure) {
    failures_.fetch_add(1, std::memory_order_relaxed);
    const std::scoped_lock lock(mutex_);
    if (!first_failure_) {
      first_failure_ = failure;
    }
  }

  [[nodiscard]] std::optional<Failure> first_failure() const {
    const std::scoped_lock lock(mutex_);
    return first_failure_;
  }

  void clear_failure() {
    const std::scoped_lock lock(mutex_);
    first_failure_.reset();
  }

  void count(Opcode opcode, std::uint64_t bytes) {
    switch (opcode) {
      case Opcode::read:
        reads_.fetch_add(1, std::memory_order_relaxed);
        read_bytes_.fetch_add(bytes, std::memory_order_relaxed);
        break;
      case Opcode::write:
        writes_.fetch_add(1, std::memory_order_relaxed);
        written_bytes_.fetch_add(bytes, std::memory_order_relaxed);
        break;
      case Opcode::flush:
        flushes_.fetch_add(1, std::memory_order_relaxed);
        break;
    }
  }

  [[nodiscard]] ServedCounts counts() const {
    return {reads_.load(std::memory_order_relaxed),
            read_bytes_.load(std::memory_order_relaxed),
            writes_.load(std::memory_order_relaxed),
            written_bytes_.load(std::memory_order_relaxed),
            flushes_.load(std::memory_order_relaxed),
            failures_.load(std::memory_order_relaxed)};
  }

 private:
  Options options_;
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<std::uint64_t> read_bytes_{0};
  std::atomic<std::uint64_t> writes_{0};
  std::atomic<std::uint64_t> written_bytes_{0};
  std::atomic<std::uint64_t> flushes_{0};
  std::atomic<std::uint64_t> failures_{0};
  mutable std::mutex mutex_;
  std::optional<Failure> first_failure_;
};

}  // namespace hippogriff::ondemand
