// One thread's way through an array: the line of the last access stays in the cache, and the next
// access in it costs no look-up.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_CURSOR_HPP_
#define HIPPOGRIFF_ARRAY_CURSOR_HPP_

#include <hippogriff/array/view.hpp>

namespace hippogriff::ondemand {

// A line that one thread keeps while it works in it, and the elements that lie in it as a whole. On
// a GPU these are registers as long as nothing takes its address: no function that is called apart
// is given one.
class KeptLine {
 public:
  HIPPO_ANYWHERE explicit KeptLine(const Cache& cache) : cache_(&cache) {}

  HIPPO_ANYWHERE ~KeptLine() { let_go(); }

  KeptLine(const KeptLine&) = delete;
  KeptLine& operator=(const KeptLine&) = delete;
  KeptLine(KeptLine&&) = delete;
  KeptLine& operator=(KeptLine&&) = delete;

  // Gives the line back, if one is kept. Lanes of a warp that are here together do so at once.
  HIPPO_ANYWHERE void let_go() {
#ifdef __CUDA_ARCH__
    let_go_with(Lanes::here(cache_->zero));
#else
    let_go_with(Alone{});
#endif
  }

 protected:
  // Whether the element lies in the line that is kept, as a whole.
  [[nodiscard]] HIPPO_ANYWHERE bool has(uint64_t index) const { return index - first_ < count_; }

  // Of an element that does.
  template <typename T>
  [[nodiscard]] HIPPO_ANYWHERE unsigned char* place_of(uint64_t index) const {
    return elements_ + static_cast<uint32_t>(index - first_) * sizeof(T);
  }

  // All of a group give back theirs; those with the same one do so at once.
  template <typename Group>
  HIPPO_ANYWHERE void let_go_with(const Group& here) {
    const Group same = here.with_same(count_ != 0 ? place_ : no_place);
    same.meet();  // what each wrote comes before
    if (count_ != 0 && same.leads()) {
      cache_->places.drop(place_, false, same.size());
    }
    count_ = 0;
    wrote_ = false;
  }

  // Takes a reference of the line instead of that of the line before, if it is there and needs no
  // wait; all of a group for theirs, those with the same one at once.
  template <typename Group>
  HIPPO_ANYWHERE bool exchange(const Group& here, uint64_t line) {
    uint32_t place = 0;
    const Group same = here.with_same(line);
    const bool there =
        same.told(same.leads() && cache_->try_hold(line, place, same.size(), Intent::keep));
    if (there) {
      place = same.told(place);
      let_go_with(same);
      place_ = place;
    }
    return there;
  }

  // Loads the line and takes a reference; not `kept` where all places that it could have are held
  // for long, perhaps by other cursors of this thread, and where 2^19 cursors keep the line.
  HIPPO_ANYWHERE NvmeStatus load(uint64_t line, bool& kept) {
    const Held held = cache_->hold(Alone{}, line, Intent::keep);
    place_ = held.place;
    kept = held.place != no_place;
    return held.status;
  }

  // From now on the elements of the line that lie in it as a whole, of so many in all, are had at
  // once; there is at least one.
  template <typename T>
  HIPPO_ANYWHERE void show(uint64_t line, uint64_t elements) {
    constexpr uint64_t element_bytes = sizeof(T);
    const uint64_t begin = line << cache_->line_shift;
    first_ = (begin + element_bytes - 1) / element_bytes;
    const uint64_t end = (begin + cache_->line_bytes()) / element_bytes;
    count_ = static_cast<uint32_t>((end < elements ? end : elements) - first_);
    elements_ = cache_->bytes_of(place_) + (first_ * element_bytes - begin);
  }

  // Before an element of the line is written. At once, and not when the line is given back: a flush
  // meanwhile waits for it.
  HIPPO_ANYWHERE void note_write() {
    cache_->places.mark_dirty(place_);
    wrote_ = true;
  }

  // Whether the line has that note: then other elements may be written, too.
  [[nodiscard]] HIPPO_ANYWHERE bool wrote() const { return wrote_; }

 private:
  const Cache* cache_;
  unsigned char* elements_ = nullptr;
  uint64_t first_ = 0;
  uint32_t count_ = 0;  // 0: no line is kept
  uint32_t place_ = 0;
  bool wrote_ = false;
};

// The only line of a thread.
class LoneLine : public KeptLine {
 public:
  HIPPO_ANYWHERE explicit LoneLine(const Cache& cache) : KeptLine(cache) {}

  HIPPO_ANYWHERE void let_go_all() { let_go(); }
};

// One of several lines of a thread: those that are linked let go before any of them waits.
class LinkedLine : public KeptLine {
 public:
  HIPPO_ANYWHERE explicit LinkedLine(const Cache& cache) : KeptLine(cache) {}

  HIPPO_ANYWHERE ~LinkedLine() {
    LinkedLine* before = this;
    while (before->next_ != this) {
      before = before->next_;
    }
    before->next_ = next_;
  }

  LinkedLine(const LinkedLine&) = delete;
  LinkedLine& operator=(const LinkedLine&) = delete;
  LinkedLine(LinkedLine&&) = delete;
  LinkedLine& operator=(LinkedLine&&) = delete;

  // From now on `other`, and all that is linked to it, lets go before this one waits, and the other
  // way round, until one of them ends.
  HIPPO_ANYWHERE void link(LinkedLine& other) {
    for (const LinkedLine* linked = next_; linked != this; linked = linked->next_) {
      if (linked == &other) {
        return;
      }
    }
    LinkedLine* const mine = next_;  // two rings become one
    next_ = other.next_;
    other.next_ = mine;
  }

  HIPPO_ANYWHERE void let_go_all() {
    LinkedLine* kept = this;
    do {
      kept->let_go();
      kept = kept->next_;
    } while (kept != this);
  }

 private:
  LinkedLine* next_ = this;
};

// What both kinds of cursors do; `Line` is what they keep.
template <typename T, typename Line>
class CursorOver : public Line {
 public:
  using status = NvmeStatus;

  HIPPO_ANYWHERE explicit CursorOver(const array_view<T>& view)
      : Line(view.cache()), view_(&view) {}

  explicit CursorOver(array_view<T>&&) = delete;  // it must stay as long as the cursor

  // The element, or zero when it cannot be had.
  [[nodiscard]] HIPPO_ANYWHERE T operator[](uint64_t index) {
    T value{};
    static_cast<void>(read(index, value));
    return value;
  }

  HIPPO_ANYWHERE status read(uint64_t index, T& value) {
    if (!this->has(index)) {
      bool apart = false;
      const status result = go_to_with_others(index, apart);
      if (result != status::success) {
        return result;
      }
      if (apart) {
        return view_->read(index, value);
      }
    }
    move_element<false>(this->template place_of<T>(index), value);
    return status::success;
  }

  HIPPO_ANYWHERE status write(uint64_t index, const T& value) {
    if (!this->has(index) || !this->wrote()) {
      if (index < view_->size() && !view_->cache().writable) {
        return view_->cache().noted(status::access_denied);
      }
      bool apart = false;
      const status result = this->has(index) ? status::success : go_to_with_others(index, apart);
      if (result != status::success) {
        return result;
      }
      if (apart) {
        return view_->write(index, value);
      }
      this->note_write();
    }
    T copy = value;
    move_element<true>(this->template place_of<T>(index), copy);
    return status::success;
  }

 protected:
  // Has the line of an element kept that is not there, or none, and the element is had `apart`:
  // where it straddles two lines, and where its line cannot be kept. All of a group call, for
  // elements of theirs.
  template <typename Group>
  HIPPO_ANYWHERE status go_to(const Group& here, uint64_t index, bool& apart) {
    const Cache& cache = view_->cache();
    const bool is_one = index < view_->size();
    const Piece piece = piece_at(cache, is_one ? index * sizeof(T) : 0, sizeof(T));
    apart = is_one && piece.size != sizeof(T);
    const Group same = here.with_same(is_one && !apart ? 1 : 0);
    if (!is_one) {
      return cache.noted(status::out_of_range);
    }
    if (apart) {
      this->let_go_all();
      return status::success;
    }
    if (!this->exchange(same, piece.line)) {
      this->let_go_all();
      bool kept = false;
      const status result = this->load(piece.line, kept);
      apart = !kept;
      if (result != status::success || apart) {
        return result;
      }
    }
    this->template show<T>(piece.line, view_->size());
    return status::success;
  }

 private:
  HIPPO_ANYWHERE status go_to_with_others(uint64_t index, bool& apart) {
#ifdef __CUDA_ARCH__
    return go_to(Lanes::here(this->view_->cache().zero), index, apart);
#else
    return go_to(Alone{}, index, apart);
#endif
  }

  const array_view<T>* view_;
};

}  // namespace hippogriff::ondemand

// NOLINTNEXTLINE(modernize-concat-nested-namespaces): also for C++17
namespace hippogriff {
inline namespace v0 {

// Several of a thread, and its other accesses meanwhile, are safe in a cache of any size, but slow
// where the lines that threads keep fill all places that a line can have: then what is not there is
// read, and written, an element at a time and past the cache. Of cursors beyond 2^19 in one line
// each access looks the line up. So let go (let_go) of what is not
// needed, above all before waiting for other threads in another way, as __syncthreads does. A flush
// waits for all lines that were written, also for this thread's own: let go before.
template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): a container, named as the standard ones are.
class array_cursor : public ondemand::CursorOver<T, ondemand::LoneLine> {
 public:
  using ondemand::CursorOver<T, ondemand::LoneLine>::CursorOver;
};

// For several in a thread, in a small cache: those that are linked (link) let go of their lines
// before one of them waits, and let_go_all lets go of all. Slower: what they keep is in memory, for
// the others' sake.
template <typename T>
// NOLINTNEXTLINE(readability-identifier-naming): a container, named as the standard ones are.
class linked_array_cursor : public ondemand::CursorOver<T, ondemand::LinkedLine> {
 public:
  using ondemand::CursorOver<T, ondemand::LinkedLine>::CursorOver;
};

}  // namespace v0
}  // namespace hippogriff

#endif  // HIPPOGRIFF_ARRAY_CURSOR_HPP_
