// Lines that one thread asks for together, so that the storage works at many of them at once: what
// thousands of threads of a GPU do by themselves.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PREFETCH_HPP_
#define HIPPOGRIFF_ARRAY_PREFETCH_HPP_

#include <hippogriff/array/view.hpp>

namespace hippogriff::ondemand {

// One thread's. Between the first ask and finish() the thread must not touch the array otherwise:
// it may wait for nothing but its own answers.
class Prefetch {
 public:
  static constexpr uint32_t most = 64;

  HIPPO_ANYWHERE explicit Prefetch(const Cache& cache) : cache_(cache) {}

  HIPPO_ANYWHERE ~Prefetch() { finish(); }

  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;
  Prefetch(Prefetch&&) = delete;
  Prefetch& operator=(Prefetch&&) = delete;

  // A hint: nothing happens where the line is there, or could only be had by waiting for others.
  HIPPO_ANYWHERE void ask(uint64_t line) {
    if (count_ == most) {
      finish();
    }
    Loading& loading = under_way_[count_];
    loading.line = line;
    if (!cache_.places.try_claim(loading.line, loading.place)) {
      return;
    }
    if (!cache_.begin_load(loading, false)) {
      const Loading claimed = loading;
      finish();  // its slots may be the ones that are wanted
      under_way_[0] = claimed;
      if (!cache_.begin_load(under_way_[0], true)) {
        return;  // the array has ended
      }
    }
    ++count_;
  }

  // Waits until all have come or failed. A failure is told to who reads the line, and asks again.
  // In any order: a slot that an answer has come to may be what the others' commands wait for.
  HIPPO_ANYWHERE void finish() {
    while (count_ != 0) {
      Wait wait(cache_.patience);  // for the next answer
      while (!finish_some()) {
        const Transit& next = under_way_[0].transit;
        if (!cache_.queue(next.queue).rest(next.ticket, wait)) {
          count_ = 0;  // the array has ended: the places stay busy
          return;
        }
      }
    }
  }

 private:
  // Whether an answer had come.
  HIPPO_ANYWHERE bool finish_some() {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      if (!cache_.try_finish_load(under_way_[i])) {
        under_way_[left++] = under_way_[i];
      }
    }
    const bool some = left != count_;
    count_ = left;
    return some;
  }

  const Cache& cache_;
  Loading under_way_[most];
  uint32_t count_ = 0;
};

// Goes through the ranges from `first` on, `bytes` each, in pieces that lie in one line. Range i
// begins at offset_of(i), and lies in the array.
template <typename OffsetOf>
class RangeWalk {
 public:
  HIPPO_ANYWHERE RangeWalk(
      const Cache& cache, const OffsetOf& offset_of, uint64_t bytes, uint64_t first, uint64_t end)
      : cache_(cache), offset_of_(offset_of), bytes_(bytes), range_(first), end_(end) {}

  [[nodiscard]] HIPPO_ANYWHERE const Cache& cache() const { return cache_; }

  [[nodiscard]] HIPPO_ANYWHERE bool at_end() const { return range_ == end_; }

  [[nodiscard]] HIPPO_ANYWHERE uint64_t offset() const { return offset_of_(range_) + done_; }

  [[nodiscard]] HIPPO_ANYWHERE Piece piece() const {
    return piece_at(cache_, offset(), bytes_ - done_);
  }

  HIPPO_ANYWHERE void pass(const Piece& piece) {
    done_ += piece.size;
    if (done_ == bytes_) {
      done_ = 0;
      ++range_;
    }
  }

 private:
  const Cache& cache_;
  const OffsetOf& offset_of_;
  uint64_t bytes_;
  uint64_t range_;
  uint64_t end_;
  uint64_t done_ = 0;  // of the range
};

// Has the lines of the next `window` pieces there.
template <typename OffsetOf>
HIPPO_ANYWHERE void prefetch(RangeWalk<OffsetOf> walk, uint32_t window) {
  Prefetch asked(walk.cache());
  for (uint32_t i = 0; i < window && !walk.at_end(); ++i) {
    const Piece piece = walk.piece();
    if (piece.size != 0) {
      asked.ask(piece.line);
    }
    walk.pass(piece);
  }
}

// Copies the ranges one after the other to `to`, `window` lines at a time. By one thread, which
// holds no line.
template <typename OffsetOf>
HIPPO_ANYWHERE NvmeStatus read_ranges(RangeWalk<OffsetOf> walk,
                                      uint32_t window,
                                      unsigned char* to) {
  for (uint32_t passed = 0; !walk.at_end(); ++passed) {
    if (window > 1 && passed % window == 0) {
      prefetch(walk, window);
    }
    const Piece piece = walk.piece();
    const NvmeStatus status = read_bytes(walk.cache(), Alone{}, walk.offset(), piece.size, to);
    if (status != NvmeStatus::success) {
      return status;
    }
    to += piece.size;
    walk.pass(piece);
  }
  return NvmeStatus::success;
}

// How many lines one of so many threads may ask for: a cache that is small for them loses nothing
// that is about to be read.
HIPPO_ANYWHERE inline uint32_t prefetch_window(const Cache& cache, uint32_t threads) {
  const uint32_t share = cache.places.place_count() / (4 * threads);
  return share < Prefetch::most ? share : Prefetch::most;
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PREFETCH_HPP_
