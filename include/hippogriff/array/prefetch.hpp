// Lines that one thread asks for, or writes, together, so that the storage works at many of them at
// once: what thousands of threads of a GPU do by themselves.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PREFETCH_HPP_
#define HIPPOGRIFF_ARRAY_PREFETCH_HPP_

#include <hippogriff/array/view.hpp>

namespace hippogriff::ondemand {

// Commands of one thread. Between the first and finish() it must not touch the array otherwise: it
// may wait for nothing but its own answers.
template <Opcode What>
class UnderWay {
 public:
  static constexpr uint32_t most = 64;

  HIPPO_ANYWHERE explicit UnderWay(const Cache& cache) : cache_(cache) {}

  HIPPO_ANYWHERE ~UnderWay() { finish(); }

  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  UnderWay(UnderWay&&) = delete;
  UnderWay& operator=(UnderWay&&) = delete;

  // For a place that is busy and ours.
  HIPPO_ANYWHERE void begin(const Loading& claimed) {
    if (count_ == most) {
      finish();
    }
    under_way_[count_] = claimed;
    if (!cache_.begin<What>(under_way_[count_], false)) {
      finish();  // its slots may be the ones that are wanted
      under_way_[0] = claimed;
      if (!cache_.begin<What>(under_way_[0], true)) {
        status_ = NvmeStatus::aborted;  // the array has ended
        return;
      }
    }
    ++count_;
  }

  // Waits until all have been answered, in any order: a slot that an answer has come to may be what
  // the others' commands wait for.
  HIPPO_ANYWHERE void finish() {
    while (count_ != 0) {
      Wait wait(cache_.patience);  // for the next answer
      while (!finish_some()) {
        const Transit& next = under_way_[0].transit;
        if (!cache_.queue(next.queue).rest(next.ticket, wait)) {
          count_ = 0;  // the array has ended: the places stay busy
          status_ = NvmeStatus::aborted;
          return;
        }
      }
    }
  }

  // The first failure of all that was answered.
  [[nodiscard]] HIPPO_ANYWHERE NvmeStatus status() const { return status_; }

 private:
  // Whether an answer had come.
  HIPPO_ANYWHERE bool finish_some() {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      NvmeStatus its = NvmeStatus::success;
      if (!cache_.try_finish<What>(under_way_[i], its)) {
        under_way_[left++] = under_way_[i];
      }
      status_ = status_ == NvmeStatus::success ? its : status_;
    }
    const bool some = left != count_;
    count_ = left;
    return some;
  }

  const Cache& cache_;
  Loading under_way_[most];
  uint32_t count_ = 0;
  NvmeStatus status_ = NvmeStatus::success;
};

// Reads of lines before they are wanted. One thread's, see UnderWay. A failure is told to who reads
// the line, and asks again.
class Prefetch {
 public:
  static constexpr uint32_t most = UnderWay<Opcode::read>::most;

  HIPPO_ANYWHERE explicit Prefetch(const Cache& cache) : cache_(cache), reads_(cache) {}

  // A hint: nothing happens where the line is there, or could only be had by waiting for others.
  HIPPO_ANYWHERE void ask(uint64_t line) {
    Loading loading;
    loading.line = line;
    if (cache_.places.try_claim(line, loading.place)) {
      reads_.begin(loading);
    }
  }

  HIPPO_ANYWHERE void finish() { reads_.finish(); }

 private:
  const Cache& cache_;
  UnderWay<Opcode::read> reads_;
};

// Writes of dirty lines. One thread's, see UnderWay.
class WriteBack {
 public:
  HIPPO_ANYWHERE explicit WriteBack(const Cache& cache) : cache_(cache), writes_(cache) {}

  // Nothing happens where the place is clean, or somebody holds it.
  HIPPO_ANYWHERE void ask(uint32_t place) {
    Loading loading;
    loading.place = place;
    if (cache_.places.take_dirty(place, loading.line, PlaceWord::used)) {
      writes_.begin(loading);
    }
  }

  // Waits; the first failure.
  HIPPO_ANYWHERE NvmeStatus finish() {
    writes_.finish();
    return cache_.noted(writes_.status());
  }

 private:
  const Cache& cache_;
  UnderWay<Opcode::write> writes_;
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
