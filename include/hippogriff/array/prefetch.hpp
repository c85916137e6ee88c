// Lines that one thread asks for, or writes, together, so that the storage works at many of them at
// once: what thousands of threads of a GPU do by themselves.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PREFETCH_HPP_
#define HIPPOGRIFF_ARRAY_PREFETCH_HPP_

#include <hippogriff/array/view.hpp>

namespace hippogriff::ondemand {

// Reads of lines before they are wanted. One thread's, see UnderWay. A failure is told to who reads
// the line, and asks again.
class Prefetch {
 public:
  static constexpr uint32_t most = UnderWay<Opcode::read>::most;

  HIPPO_ANYWHERE explicit Prefetch(const Cache& cache) : cache_(cache), reads_(cache) {}

  // A hint: nothing happens where the line is there, or could only be had by waiting for others.
  HIPPO_ANYWHERE void ask(uint64_t line) {
    Found found;
    if (cache_.places.try_claim(line, found)) {
      reads_.begin({{}, line, found.place});
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
  if (cache.places.whole) {
    return Prefetch::most;
  }
  const uint32_t share = cache.places.place_count() / (4 * threads);
  return share < Prefetch::most ? share : Prefetch::most;
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PREFETCH_HPP_
