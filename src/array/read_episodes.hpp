// Whether what reads of a cold file come to is soon read all over, as where kernels go through it
// in order: by what became of parts they came to before.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>

namespace hippogriff::ondemand {

// Of a file in blocks, one of each 16 of which is the sample: these are read as if nothing were
// known. An episode of one begins with a read after none in the last `gap_reads` of the array, and
// is dense when the block is read as a whole in it, by some of its own reads: the one that is the
// last of enough, after others long ago, tells nothing. It counts `known_reads` after it began,
// whether it was dense by then or not: so neither kind is known before the other. Where half of the
// latest that count were dense, blocks are expected to be read all over from their first read on: a
// dense one costs five pages alone and then all of it, another a page or two, and where a page
// alone takes as long as 5 in order, that is as much as all of both at once. So who goes through a
// file in order, in whatever pieces, is told from who reads here and there, and from who does both.
// Thread-safe.
class ReadEpisodes {
 public:
  static constexpr std::size_t group_blocks = 16;
  static constexpr std::uint64_t gap_reads = 2048;
  static constexpr std::uint64_t known_reads = 1024;
  static constexpr std::size_t known_wanted = 16;
  // Where each read begins an episode, one of the sample comes in 16 of them.
  static constexpr std::size_t kept = known_reads / group_blocks + 4 * known_wanted;

  explicit ReadEpisodes(std::size_t blocks) : groups_((blocks + group_blocks - 1) / group_blocks) {}

  // Another block of each group, so that no stride misses the sample, or has only it.
  [[nodiscard]] static bool is_sampled(std::size_t block) noexcept {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
    return block % group_blocks == (block / group_blocks + 1) * golden >> 60;
  }

  [[nodiscard]] bool are_dense() const noexcept { return dense_.load(std::memory_order_relaxed); }

  // So many pages of a block are about to be read; whether all of it will be, for all that is
  // known.
  [[nodiscard]] bool note(std::size_t block, std::uint64_t pages) noexcept {
    const std::uint64_t now = reads_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (!is_sampled(block)) {
      return dense_.load(std::memory_order_relaxed);
    }
    const std::scoped_lock lock(mutex_);
    if (make_ready()) {
      Latest& latest = latest_[block / group_blocks];
      if (latest.read == 0 || now >= latest.read + gap_reads) {
        episodes_[next_++ % kept] = {block, now, false};
        judge(now);
        latest = {};
      }
      latest.read = now;
      ++latest.reads;
      latest.pages += pages;
    }
    return false;
  }

  // Enough of a block was read, so that all of it is read now.
  void note_whole(std::size_t block) noexcept {
    if (!is_sampled(block)) {
      return;
    }
    const std::scoped_lock lock(mutex_);
    if (latest_ == nullptr || !latest_[block / group_blocks].are_some()) {
      return;
    }
    for (std::size_t back = 1; back <= std::min(next_, kept); ++back) {
      Episode& each = episodes_[(next_ - back) % kept];
      if (each.block == block) {
        each.dense = true;
        judge(reads_.load(std::memory_order_relaxed));
        return;
      }
    }
  }

 private:
  struct Episode {
    std::size_t block = 0;
    std::uint64_t began = 0;
    bool dense = false;
  };

  // The latest episode of a sampled block.
  struct Latest {
    std::uint64_t read = 0;  // the last one; 0: none
    std::uint64_t reads = 0;
    std::uint64_t pages = 0;

    [[nodiscard]] bool are_some() const { return reads >= 2 && pages >= 3; }
  };

  // By the latest that are known. Too few of them change nothing.
  void judge(std::uint64_t now) noexcept {
    std::size_t known = 0;
    std::size_t dense = 0;
    for (std::size_t back = 1; back <= std::min(next_, kept) && known < known_wanted; ++back) {
      const Episode& each = episodes_[(next_ - back) % kept];
      if (now >= each.began + known_reads) {
        ++known;
        dense += each.dense ? 1 : 0;
      }
    }
    if (known == known_wanted) {
      dense_.store(2 * dense >= known, std::memory_order_relaxed);
    }
  }

  // With the lock. False without memory: nothing is expected then.
  bool make_ready() noexcept {
    if (latest_ == nullptr) {
      latest_.reset(new (std::nothrow) Latest[groups_]);
    }
    return latest_ != nullptr;
  }

  const std::size_t groups_;
  std::atomic<std::uint64_t> reads_{0};
  std::atomic<bool> dense_{false};
  std::mutex mutex_;
  std::unique_ptr<Latest[]> latest_;  // of each group
  std::array<Episode, kept> episodes_{};
  std::size_t next_ = 0;
};

}  // namespace hippogriff::ondemand
