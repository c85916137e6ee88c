// How many reads more a part of a cold file will get from a gather that is under way, by what the
// gather has read of a sample of parts until now.
#pragma once

#include "array/read_episodes.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>

namespace hippogriff::ondemand {

// Of a file in blocks, one of each 16 of which is the sample. A gather's reads of it come in
// phases, each as long as all before: what blocks that were read once in one phase get in the
// second half of the next tells how often a block will be read again that is read for the first
// time. What the first half reads may have been under way beside them, whatever its order. So rows
// all over the file, rows in order, and few rows again and again are told apart by what happened,
// within some hundredths of a gather. Thread-safe.
class ReadForecast {
 public:
  explicit ReadForecast(std::size_t blocks) : groups_((blocks + group_blocks - 1) / group_blocks) {}

  // A gather of so many lines begins; `reads` is how many the array has read until now. Of several
  // under way the one counts that ends last. What a gather finds in a cache makes it seem to last
  // longer than it does, unless end() is told.
  void begin(std::uint64_t lines, std::uint64_t reads) noexcept {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t end = end_.load(std::memory_order_relaxed);
    if (reads >= end) {
      reads_each_.store(0, std::memory_order_relaxed);
      begins_ = true;
    }
    end_.store(std::max(end, reads + lines), std::memory_order_relaxed);
  }

  // No gather is under way any more.
  void end() noexcept { end_.store(0, std::memory_order_relaxed); }

  // Whether a gather was told that may be under way.
  [[nodiscard]] bool is_told() const noexcept { return end_.load(std::memory_order_relaxed) != 0; }

  // A block is about to be read from its drive: how many reads more one gets that is read for the
  // first time, for all that is known. 0 for blocks of the sample: they show what happens without.
  [[nodiscard]] double note(std::size_t block, std::uint64_t reads) noexcept {
    const std::uint64_t end = end_.load(std::memory_order_relaxed);
    if (reads >= end) {
      return 0;
    }
    if (ReadEpisodes::is_sampled(block)) {
      sample(block / group_blocks);
      return 0;
    }
    return reads_each_.load(std::memory_order_relaxed) * static_cast<double>(end - reads);
  }

 private:
  // Of a sampled block: not read, once in this phase, once in the last one, more than that.
  enum class Seen : std::uint8_t { never, once, once_before, often };

  static constexpr std::size_t group_blocks = ReadEpisodes::group_blocks;
  // Reads of the sample; half of a phase is with all others what a GPU may have under way, or more.
  static constexpr std::uint64_t first_phase = 256;
  static constexpr std::uint64_t once_enough = 16;
  static constexpr std::uint64_t again_enough = 8;

  void sample(std::size_t group) noexcept {
    const std::scoped_lock lock(mutex_);
    if (!make_ready()) {
      return;
    }
    Seen& seen = seen_[group];
    again_ += seen == Seen::once_before && reads_ >= phase_end_ - phase_end_ / 4 ? 1 : 0;
    if (seen == Seen::never || seen == Seen::once) {
      seen = seen == Seen::never ? Seen::once : Seen::often;
    }
    if (++reads_ == phase_end_) {
      end_phase();
    }
  }

  void end_phase() noexcept {
    const std::uint64_t half_a_phase = reads_ / 4 * group_blocks;
    double each = 0;
    if (again_ >= again_enough && once_before_ >= once_enough) {
      each = static_cast<double>(again_) / static_cast<double>(once_before_) /
             static_cast<double>(half_a_phase);
    }
    reads_each_.store(each, std::memory_order_relaxed);
    once_before_ = again_ = 0;
    for (Seen& seen : std::span(seen_.get(), groups_)) {
      if (seen == Seen::once) {
        seen = Seen::once_before;
        ++once_before_;
      } else if (seen == Seen::once_before) {
        seen = Seen::often;
      }
    }
    phase_end_ = 2 * reads_;
  }

  // With the lock. False without memory: nothing is foreseen then.
  bool make_ready() noexcept {
    if (seen_ == nullptr) {
      seen_.reset(new (std::nothrow) Seen[groups_]);
    }
    if (seen_ != nullptr && begins_) {
      std::fill_n(seen_.get(), groups_, Seen::never);
      reads_ = once_before_ = again_ = 0;
      phase_end_ = first_phase;
      begins_ = false;
    }
    return seen_ != nullptr;
  }

  const std::size_t groups_;
  std::atomic<std::uint64_t> end_{0};
  std::atomic<double> reads_each_{0};  // of a block, for each read of the gather
  std::mutex mutex_;
  bool begins_ = true;
  std::unique_ptr<Seen[]> seen_;  // the sampled block of each group
  std::uint64_t reads_ = 0;       // of the sample
  std::uint64_t phase_end_ = first_phase;
  std::uint64_t once_before_ = 0;  // blocks
  std::uint64_t again_ = 0;        // reads of those in the second half of this phase
};

}  // namespace hippogriff::ondemand
