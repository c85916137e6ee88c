// An array as threads of its device see it: elements and ranges.
//
// A failed access gives zero and a status, and the array remembers the first one (failed()), as
// CUDA remembers its own. Elements may straddle lines; their parts are read one after the other.
// Threads that use the same element at the same time, one of them writing, must agree among
// themselves, as with memory.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_VIEW_HPP_
#define HIPPOGRIFF_ARRAY_VIEW_HPP_

#include <hippogriff/array/warp.hpp>

namespace hippogriff::ondemand {

// The bytes from `offset` on that lie in one line.
struct Piece {
  uint64_t line = 0;
  uint32_t begin = 0;  // in the line
  uint32_t size = 0;
  bool whole = false;  // all of the line that is the array's
};

struct ByteRange {
  uint64_t offset = 0;  // in the array
  uint64_t bytes = 0;
};

HIPPO_ANYWHERE inline Piece piece_at(const Cache& cache, uint64_t offset, uint64_t bytes) {
  Piece piece;
  piece.line = offset >> cache.line_shift;
  piece.begin = static_cast<uint32_t>(offset) & (cache.line_bytes() - 1);
  const uint64_t room = cache.line_bytes() - piece.begin;
  piece.size = static_cast<uint32_t>(bytes < room ? bytes : room);
  piece.whole = piece.begin == 0 &&
                (piece.size == cache.line_bytes() || offset + piece.size == cache.size_bytes);
  return piece;
}

template <typename Group>
HIPPO_ANYWHERE void copy_plain(const Group& group,
                               unsigned char* to,
                               const unsigned char* from,
                               uint32_t bytes) {
  if ((reinterpret_cast<uint64_t>(from) | reinterpret_cast<uint64_t>(to) | bytes) % 8 == 0) {
    for (uint32_t i = group.rank(); i < bytes / 8; i += group.size()) {
      reinterpret_cast<uint64_t*>(to)[i] = reinterpret_cast<const uint64_t*>(from)[i];
    }
    return;
  }
  for (uint32_t i = group.rank(); i < bytes; i += group.size()) {
    to[i] = from[i];
  }
}

// Copies the part of a line that is held, and lies in `bytes` from `offset` on, to its place in
// `to`.
template <typename Group>
HIPPO_ANYWHERE void copy_part(const Cache& cache,
                              const Group& group,
                              const ByteRange& range,
                              uint64_t line,
                              uint32_t place,
                              unsigned char* to) {
  const uint64_t begin = line << cache.line_shift;
  const uint64_t skipped = begin > range.offset ? begin - range.offset : 0;
  const Piece piece = piece_at(cache, range.offset + skipped, range.bytes - skipped);
  copy_plain(group, to + skipped, cache.bytes_of(place) + piece.begin, piece.size);
}

// Of at most as many lines as the group has threads. First those that need no wait for others are
// read, together; then, when nobody holds one, the rest.
template <typename Group>
HIPPO_ANYWHERE NvmeStatus
read_together(const Cache& cache, const Group& group, const ByteRange& range, unsigned char* to) {
  const uint64_t first = range.offset >> cache.line_shift;
  const uint64_t last = (range.offset + range.bytes - 1) >> cache.line_shift;
  const uint64_t mine = first + group.rank();
  const bool wants = mine <= last;
  uint32_t place = 0;
  bool holds = false;
  if (first != last) {
    holds = wants && cache.try_hold(mine, place);
    holds = fetch(cache, group, mine, wants && !holds, place) || holds;
  }
  group.meet();  // what each has acquired, all read
  for (uint32_t left = group.vote(holds); left != 0; left &= left - 1) {
    const uint32_t one = lowest(left);
    copy_part(cache, group, range, group.told_by(one, mine), group.told_by(one, place), to);
  }
  group.meet();
  if (holds) {
    cache.places.drop(place, false);
  }
  for (uint32_t left = group.vote(wants && !holds); left != 0; left &= left - 1) {
    const uint64_t line = group.told_by(lowest(left), mine);
    const Held held = cache.hold(group, line, Intent::use);
    if (held.status != NvmeStatus::success) {
      return held.status;
    }
    copy_part(cache, group, range, line, held.place, to);
    static_cast<void>(cache.drop(group, held, false));
  }
  return NvmeStatus::success;
}

// All of the group call, with the same arguments.
template <typename Group>
HIPPO_ANYWHERE HIPPO_APART NvmeStatus read_bytes(
    const Cache& cache, const Group& group, uint64_t offset, uint64_t bytes, unsigned char* to) {
  group.meet();  // whoever came first would hold a place that the others may still wait for
  while (bytes != 0) {
    const uint64_t line_begin = offset & ~(uint64_t{cache.line_bytes()} - 1);
    const uint64_t room = line_begin + (uint64_t{group.size()} << cache.line_shift) - offset;
    const ByteRange range{offset, bytes < room ? bytes : room};
    const NvmeStatus status = read_together(cache, group, range, to);
    if (status != NvmeStatus::success) {
      return status;
    }
    to += range.bytes;
    offset += range.bytes;
    bytes -= range.bytes;
  }
  return NvmeStatus::success;
}

template <typename Group>
HIPPO_ANYWHERE HIPPO_APART NvmeStatus write_bytes(const Cache& cache,
                                                  const Group& group,
                                                  uint64_t offset,
                                                  uint64_t bytes,
                                                  const unsigned char* from) {
  group.meet();  // as in read_bytes
  while (bytes != 0) {
    const Piece piece = piece_at(cache, offset, bytes);
    const Held held = cache.hold(group, piece.line, piece.whole ? Intent::overwrite : Intent::use);
    if (held.status != NvmeStatus::success) {
      return held.status;
    }
    copy_plain(group, cache.bytes_of(held.place) + piece.begin, from, piece.size);
    const NvmeStatus left = cache.drop(group, held, true);
    if (left != NvmeStatus::success) {
      return left;
    }
    from += piece.size;
    offset += piece.size;
    bytes -= piece.size;
  }
  return NvmeStatus::success;
}

}  // namespace hippogriff::ondemand

// NOLINTNEXTLINE(modernize-concat-nested-namespaces): also for C++17
namespace hippogriff {
inline namespace v0 {

template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): as the standard's futures are.
class array_get;

// What kernels take by value. Trivially copyable; must not outlive its array.
template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): a container, named as the standard ones are.
class array_view {
 public:
  using status = ondemand::NvmeStatus;

  array_view() = default;

  HIPPO_ANYWHERE array_view(const ondemand::Cache& cache, ondemand::uint64_t count)
      : cache_(cache), count_(count) {}

  [[nodiscard]] HIPPO_ANYWHERE ondemand::uint64_t size() const { return count_; }

  // The element, or zero when it cannot be had.
  [[nodiscard]] HIPPO_ANYWHERE T operator[](ondemand::uint64_t index) const {
    T value{};
    static_cast<void>(read(index, value));
    return value;
  }

  HIPPO_ANYWHERE status read(ondemand::uint64_t index, T& value) const {
    if (index >= count_) {
      return cache_.noted(status::out_of_range);
    }
#ifdef __CUDA_ARCH__
    return ondemand::coalesced_read(cache_, index * sizeof(T), value);
#else
    return ondemand::read_bytes(
        cache_, ondemand::Alone{}, index * sizeof(T), sizeof(T), bytes(value));
#endif
  }

  HIPPO_ANYWHERE status write(ondemand::uint64_t index, const T& value) const {
    if (index >= count_ || !cache_.writable) {
      return refused();
    }
#ifdef __CUDA_ARCH__
    return ondemand::coalesced_write(cache_, index * sizeof(T), value);
#else
    return ondemand::write_bytes(
        cache_, ondemand::Alone{}, index * sizeof(T), sizeof(T), bytes(value));
#endif
  }

  // `count` elements from `first` on, by all of a group together (ondemand::Alone, or Lanes of a
  // warp): they give the same arguments. Lines that are written as a whole are not read.
  template <typename Group>
  HIPPO_ANYWHERE status
  read_range(const Group& group, ondemand::uint64_t first, ondemand::uint64_t count, T* to) const {
    if (first > count_ || count > count_ - first) {
      return cache_.noted(status::out_of_range);
    }
    return ondemand::read_bytes(
        cache_, group, first * sizeof(T), count * sizeof(T), reinterpret_cast<unsigned char*>(to));
  }

  template <typename Group>
  HIPPO_ANYWHERE status write_range(const Group& group,
                                    ondemand::uint64_t first,
                                    ondemand::uint64_t count,
                                    const T* from) const {
    if (first > count_ || count > count_ - first || !cache_.writable) {
      return refused();
    }
    return ondemand::write_bytes(cache_,
                                 group,
                                 first * sizeof(T),
                                 count * sizeof(T),
                                 reinterpret_cast<const unsigned char*>(from));
  }

  // A hint: has the element on its way, if that needs no wait: where its line is not there, and a
  // clean place and a slot of a queue are. Nobody needs to come back for it; what goes wrong is
  // told to nobody. Lanes of a warp that are here together ask together.
  HIPPO_ANYWHERE void prefetch(ondemand::uint64_t index) const {
    if (index < count_) {
#ifdef __CUDA_ARCH__
      ondemand::coalesced_prefetch(cache_, index * sizeof(T), sizeof(T));
#else
      ondemand::prefetch_bytes(cache_, ondemand::Alone{}, index * sizeof(T), sizeof(T));
#endif
    }
  }

  // The same of `count` elements from `first` on, by all of a group; those beyond the end are left
  // out. No more lines are under way than the queues for this have slots.
  template <typename Group>
  HIPPO_ANYWHERE void prefetch_range(const Group& group,
                                     ondemand::uint64_t first,
                                     ondemand::uint64_t count) const {
    if (first < count_ && count != 0) {
      const ondemand::uint64_t most = count_ - first;
      ondemand::prefetch_bytes(
          cache_, group, first * sizeof(T), (count < most ? count : most) * sizeof(T));
    }
  }

  // Asks for the element and goes on; see array_get. The view must stay as long.
  [[nodiscard]] HIPPO_ANYWHERE array_get<T> get_async(ondemand::uint64_t index) const {
    prefetch(index);
    return array_get<T>(*this, index);
  }

  // The first failure of any thread; success when there was none. A look across the link.
  [[nodiscard]] HIPPO_ANYWHERE status failed() const {
    return static_cast<status>(
        ondemand::system_ref<ondemand::uint32_t>(*cache_.sticky).load(ondemand::relaxed));
  }

  [[nodiscard]] HIPPO_ANYWHERE const ondemand::Cache& cache() const { return cache_; }

 private:
  [[nodiscard]] HIPPO_ANYWHERE status refused() const {
    return cache_.noted(cache_.writable ? status::out_of_range : status::access_denied);
  }

  HIPPO_ANYWHERE static unsigned char* bytes(T& value) {
    return reinterpret_cast<unsigned char*>(&value);
  }

  HIPPO_ANYWHERE static const unsigned char* bytes(const T& value) {
    return reinterpret_cast<const unsigned char*>(&value);
  }

  ondemand::Cache cache_;
  ondemand::uint64_t count_ = 0;
};

// The same for all elements: hippogriff_array_element_view writes its bytes.
static_assert(sizeof(array_view<char>) == sizeof(ondemand::Cache) + sizeof(ondemand::uint64_t));

#ifdef HIPPOGRIFF_VIEW_LAYOUT
static_assert(HIPPOGRIFF_VIEW_LAYOUT == ondemand::view_layout,
              "the library that makes the views is of another version than these headers");
#endif

// An element that was asked for. It holds nothing: dropped, nothing is lost; and where the line
// could not be asked for, or has left the cache again, waiting is an ordinary read. Trivially
// copyable.
template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): as the standard's futures are.
class array_get {
 public:
  using status = ondemand::NvmeStatus;

  HIPPO_ANYWHERE array_get(const array_view<T>& view, ondemand::uint64_t index)
      : view_(&view), index_(index) {}

  // As array_view::read.
  HIPPO_ANYWHERE status wait(T& value) const { return view_->read(index_, value); }

  // The element, or zero when it cannot be had.
  [[nodiscard]] HIPPO_ANYWHERE T value() const { return (*view_)[index_]; }

  [[nodiscard]] HIPPO_ANYWHERE ondemand::uint64_t index() const { return index_; }

 private:
  const array_view<T>* view_;
  ondemand::uint64_t index_;
};

}  // namespace v0
}  // namespace hippogriff

#endif  // HIPPOGRIFF_ARRAY_VIEW_HPP_
