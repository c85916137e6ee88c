// The table of a cache's places: a hashed table of sets that says which line is where.
//
// A line belongs to one set of up to eight places (ways): by a hash of its number, or, where the
// table has places for all lines of the array, by that number. One word a place says everything of
// it:
//
//   bits 0-19 references | 20 busy | 21 dirty | 22 used | 24-63 the line's number, or none
//
// so that one addition takes a reference and tells whose it is. Who finds no place with the line
// takes the set's lock for a moment, looks again, and claims a victim by one compare-and-swap: a
// place without references, by a clock that passes over what was used since it came by, clean ones
// before dirty ones. So a miss is one command however many wait for it. Busy is a place whose bytes
// are being loaded, overwritten as a whole or written back, by one thread (or group of lanes), or
// by a pending command, which whoever meets it has to settle (pending.hpp).
//
// Behind the sets there is one place more, the spare one. Who finds all places of a set held for a
// while takes it, and keeps the set's lock: so nobody brings the line into the set until the access
// is done, and what it wrote is in the storage (Cache::leave_spare).
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PLACES_HPP_
#define HIPPOGRIFF_ARRAY_PLACES_HPP_

#include <hippogriff/array/counting.hpp>
#include <hippogriff/array/nvme.hpp>
#include <hippogriff/array/waiting.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t ways_max = 8;
inline constexpr uint64_t no_line = (uint64_t{1} << 40U) - 1;
inline constexpr uint32_t no_place = ~uint32_t{0};

// So many references of one line are kept at the same time, by cursors; further ones do without.
inline constexpr uint64_t kept_most = uint64_t{1} << 19U;

// A miss that leaves no more clean places than this in its set has cold dirty ones written.
inline constexpr uint32_t few_clean = 1;

// Who holds all of a set's places may be the one who waits: after so many pauses (about a tenth of
// a millisecond on a GPU, two on the host) the line is had without one of them.
#ifdef __CUDA_ARCH__
inline constexpr uint32_t held_pauses = 256;
#else
inline constexpr uint32_t held_pauses = 24;
#endif

// One place of the table.
struct PlaceWord {
  static constexpr uint64_t reference = 1;
  static constexpr uint64_t references = (uint64_t{1} << 20U) - 1;
  static constexpr uint64_t busy = uint64_t{1} << 20U;
  static constexpr uint64_t dirty = uint64_t{1} << 21U;
  static constexpr uint64_t used = uint64_t{1} << 22U;
  static constexpr uint64_t shut = uint64_t{1} << 23U;  // more than all references
  static constexpr uint32_t line_shift = 24;

  HIPPO_ANYWHERE static constexpr uint64_t line(uint64_t word) { return word >> line_shift; }

  HIPPO_ANYWHERE static constexpr uint64_t of(uint64_t line_number, uint64_t rest) {
    return (line_number << line_shift) | rest;
  }

  HIPPO_ANYWHERE static constexpr bool idle(uint64_t word) {
    return (word & (references | busy)) == 0;
  }
};

// What a place's bytes are, for those who read them without a reference: bits 0-23 a number that is
// another whenever they become another line's, bits 24-63 one more than that line's number, or 0
// while they may change hands. It is 0 before they change, and the line's once somebody holds them
// (peek.hpp). A number comes again after 2^24 claims in its set.
struct PlaceKey {
  static constexpr uint64_t numbers = (uint64_t{1} << 24U) - 1;

  HIPPO_ANYWHERE static constexpr uint64_t of(uint64_t line_number) {
    return (line_number + 1) << PlaceWord::line_shift;
  }
};

struct SetState {
  uint32_t lock = 0;
  uint32_t hand = 0;  // guarded by the lock: bits 0-7 the clock's, 8-31 how many claims there were

  // As if there had been so many.
  HIPPO_ANYWHERE static constexpr SetState after(uint64_t claims) {
    return {0, static_cast<uint32_t>(claims << 8U)};
  }
};

// overwrite: all bytes of the line; keep: for more than one access, so never in the spare place;
// prefetch: only where nothing has to be written back for it.
enum class Intent : uint32_t { use, overwrite, keep, prefetch };

// What there is to do for who wants a line, or a place clean. settle: pending commands, or wait for
// them. spare: all places are held; the spare one is ours, with the set's lock, or, for who wants
// to keep the line, also where too many keep it, `no_place`.
enum class Step : uint32_t { ready, overwrite, load, write_back, settle, spare, wait, failed };

// `other` is, for write_back, the victim's line; for settle, the places whose commands are pending,
// a bit each, from `place` on; for load and overwrite, those of the set's places that should be
// written, a bit each, from the set's first on; for failed, the status.
struct Found {
  Step step = Step::failed;
  uint32_t place = 0;
  uint64_t other = 0;
};

// Pointers alone: copied into kernels by value. Thread-safe. All functions are one thread's.
struct PlaceTable {
  uint64_t* words = nullptr;     // a place each, and the spare one
  uint64_t* keys = nullptr;      // a place each; at least ways_max
  uint32_t* statuses = nullptr;  // as words: why the last load failed; busy: what is pending
  SetState* sets = nullptr;
  CacheCounters* counters = nullptr;
  uint32_t set_count = 0;
  uint32_t ways = 0;
  bool whole = false;  // every line of the array has a place of its own: that of its number

  [[nodiscard]] HIPPO_ANYWHERE uint32_t place_count() const { return set_count * ways; }

  // The place behind the others.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t spare() const { return place_count(); }

  // Takes references if the line is there and needs no wait: as many as there are threads that one
  // does so for.
  [[nodiscard]] HIPPO_ANYWHERE bool try_hold(uint64_t line,
                                             uint32_t& place,
                                             uint32_t references = 1,
                                             Intent intent = Intent::use) const {
    place = place_with(line);
    if (place == no_place) {
      return false;
    }
    const uint64_t added = references * PlaceWord::reference;
    const uint64_t old = word_at(place).fetch_add(added, acquire);
    if (PlaceWord::line(old) == line && (old & PlaceWord::busy) == 0 && !crowded(old, intent)) {
      touch(place, old);
      return true;
    }
    word_at(place).fetch_sub(added, relaxed);
    return false;
  }

  // Claims a place for the line, which then must be loaded. False when the line is there, and when
  // a place cannot be had without waiting.
  [[nodiscard]] HIPPO_ANYWHERE bool try_claim(uint64_t line, Found& found) const {
    return place_with(line) == no_place &&
           claim(line, Intent::prefetch, set_of(line), false, found);
  }

  // The place that has the line at this moment, or no_place.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t place_with(uint64_t line) const {
    return place_of(line, set_of(line) * ways);
  }

  // Looks until there is something to do for the line.
  HIPPO_ANYWHERE Found find(uint64_t line, Intent intent, Wait& wait) const {
    const uint32_t set = set_of(line);
    for (;;) {
      Found found;
      found.place = place_of(line, set * ways);
      if (found.place != no_place && join(line, intent, found, wait)) {
        return found;
      }
      if (claim(line, intent, set, wait.rounds() >= held_pauses, found)) {
        return found;
      }
      if (!wait.again()) {
        return {Step::failed, 0, static_cast<uint64_t>(NvmeStatus::aborted)};
      }
    }
  }

  // Gives references back. `wrote`: bytes were written.
  HIPPO_ANYWHERE void drop(uint32_t place, bool wrote, uint32_t references = 1) const {
    if (wrote) {
      mark_dirty(place);
    }
    word_at(place).fetch_sub(references * PlaceWord::reference, release);
  }

  // By who holds the place, and lets go after what it writes: until then nobody takes the mark.
  HIPPO_ANYWHERE void mark_dirty(uint32_t place) const {
    shared_ref<uint64_t> word = word_at(place);
    if ((word.load(relaxed) & PlaceWord::dirty) == 0) {
      word.fetch_or(PlaceWord::dirty, relaxed);
    }
  }

  // Lets others read the bytes of a place without a reference; we hold it, and it is not busy.
  HIPPO_ANYWHERE void publish(uint32_t place, uint64_t line) const {
    shared_ref<uint64_t>(keys[place]).fetch_or(PlaceKey::of(line), relaxed);
  }

  // The bytes of a busy place are there: those who wait have them, and we keep our reference.
  HIPPO_ANYWHERE void open(uint32_t place) const {
    word_at(place).fetch_sub(PlaceWord::busy, release);
  }

  // The same, without our reference.
  HIPPO_ANYWHERE void open_and_drop(uint32_t place, bool dirty) const {
    if (dirty) {
      word_at(place).fetch_or(PlaceWord::dirty, relaxed);
    }
    word_at(place).fetch_sub(PlaceWord::busy | PlaceWord::reference, release);
  }

  // The bytes could not be had: nobody's line; those who wait for it see that, and why.
  HIPPO_ANYWHERE void give_up(uint32_t place, NvmeStatus status) const {
    shared_ref<uint32_t>(statuses[place]).store(static_cast<uint32_t>(status), relaxed);
    shared_ref<uint64_t> word = word_at(place);
    uint64_t now = word.load(relaxed);
    while (!word.compare_exchange_weak(
        now,
        PlaceWord::of(no_line, (now & PlaceWord::references) - PlaceWord::reference),
        release,
        relaxed)) {
    }
  }

  // Makes the spare place busy again, by who has it and will write it.
  HIPPO_ANYWHERE void close_spare() const { word_at(spare()).fetch_add(PlaceWord::busy, relaxed); }

  // Gives the spare place and the set's lock back.
  HIPPO_ANYWHERE void leave_spare(uint64_t line) const {
    word_at(spare()).store(PlaceWord::of(no_line, 0), release);
    unlock_set(line);
  }

  // By who has taken the spare place for the line and has given it up: others may have it by now.
  HIPPO_ANYWHERE void unlock_set(uint64_t line) const {
    shared_ref<uint32_t>(sets[set_of(line)].lock).store(0, release);
  }

  // Nothing was asked for: who waits for the line looks again.
  HIPPO_ANYWHERE void withdraw(uint32_t place) const { give_up(place, NvmeStatus::success); }

  // Whether the place, which is busy, has a pending command, as far as one sees; `slot` is its
  // slot's number among those of all queues.
  [[nodiscard]] HIPPO_ANYWHERE bool is_pending(uint32_t place, uint32_t& slot) const {
    const uint32_t now = shared_ref<uint32_t>(statuses[place]).load(relaxed);
    slot = now & ~pending_mark;
    return (now & pending_mark) != 0;
  }

  // By who has the place; before the command is pending, and once it is settled.
  HIPPO_ANYWHERE void note_pending(uint32_t place, uint32_t slot) const {
    shared_ref<uint32_t>(statuses[place]).store(pending_mark | slot, relaxed);
  }

  HIPPO_ANYWHERE void forget_pending(uint32_t place) const {
    shared_ref<uint32_t>(statuses[place]).store(0, relaxed);
  }

  // Makes a dirty place that nobody holds ours: busy, with a reference, and clean from now on:
  // whoever writes after us makes it dirty again. Those that have the mark `used` only where that
  // is given as `marks`.
  HIPPO_ANYWHERE bool take_dirty(uint32_t place, uint64_t& line, uint64_t marks) const {
    uint64_t word = word_at(place).load(relaxed);
    if (!PlaceWord::idle(word) || (word & PlaceWord::dirty) == 0 ||
        (word & PlaceWord::used & ~marks) != 0) {
      return false;
    }
    const bool ours = word_at(place).compare_exchange_strong(
        word,
        (word & ~PlaceWord::dirty) + (PlaceWord::busy | PlaceWord::reference),
        acquire,
        relaxed);
    line = ours ? PlaceWord::line(word) : line;
    return ours;
  }

  // Of a place that is busy.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t line_at(uint32_t place) const {
    return PlaceWord::line(word_at(place).load(relaxed));
  }

  // Whether a place is dirty now, and with which line.
  [[nodiscard]] HIPPO_ANYWHERE bool is_dirty(uint32_t place, uint64_t& line) const {
    const uint64_t word = word_at(place).load(relaxed);
    line = PlaceWord::line(word);
    return (word & PlaceWord::dirty) != 0;
  }

  // Nobody takes a reference of a place that is shut; a line that comes to it opens it.
  HIPPO_ANYWHERE void shut(uint32_t place, bool shuts) const {
    if (shuts) {
      word_at(place).fetch_or(PlaceWord::shut, relaxed);
    } else {
      word_at(place).fetch_and(~PlaceWord::shut, relaxed);
    }
  }

  // What there is to do until the place is clean: nothing (ready), to write it back (it is ours),
  // to settle its pending command, or to wait.
  HIPPO_ANYWHERE Found claim_dirty(uint32_t place) const {
    const uint64_t word = word_at(place).load(acquire);
    Found found{Step::wait, place, 0};
    uint32_t slot = 0;
    if ((word & (PlaceWord::dirty | PlaceWord::busy)) == 0) {
      found.step = Step::ready;
    } else if (take_dirty(place, found.other, PlaceWord::used)) {
      found.step = Step::write_back;
    } else if ((word & PlaceWord::busy) != 0 && is_pending(place, slot)) {
      found.step = Step::settle;
      found.other = 1;
    }
    return found;
  }

  // The first place of the line's set.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t first_place_of(uint64_t line) const {
    return set_of(line) * ways;
  }

  // Marks a place as used, whose word was seen to be so.
  HIPPO_ANYWHERE void touch(uint32_t place, uint64_t seen) const {
    if ((seen & PlaceWord::used) == 0) {
      word_at(place).fetch_or(PlaceWord::used, relaxed);
    }
  }

  HIPPO_ANYWHERE static void count(uint64_t& counter) {
    shared_ref<uint64_t>(counter).fetch_add(1, relaxed);
  }

 private:
  [[nodiscard]] HIPPO_ANYWHERE shared_ref<uint64_t> word_at(uint32_t place) const {
    return shared_ref<uint64_t>(words[place]);
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t set_of(uint64_t line) const {
    return whole ? static_cast<uint32_t>(line) / ways_max
                 : below(set_count, static_cast<uint32_t>(spread(line) >> 32U));
  }

  // The words of a set. All are asked for before one is looked at: on a GPU that is one latency.
  struct Words {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the loop fills all
    HIPPO_ANYWHERE Words(const PlaceTable& table, uint32_t first) {
      HIPPO_UNROLL
      for (uint32_t way = 0; way < ways_max; ++way) {
        word[way] = way < table.ways ? table.word_at(first + way).load(relaxed) : ~uint64_t{0};
      }
    }

    // Those of which it is so, a bit each.
    template <typename Predicate>
    [[nodiscard]] HIPPO_ANYWHERE uint32_t which(Predicate is_so) const {
      uint32_t those = 0;
      HIPPO_UNROLL
      for (uint32_t way = 0; way < ways_max; ++way) {
        those |= is_so(word[way]) ? 1U << way : 0U;
      }
      return those;
    }

    // Without an index that the compiler does not know: registers have none.
    [[nodiscard]] HIPPO_ANYWHERE uint64_t of(uint32_t wanted) const {
      uint64_t found = 0;
      HIPPO_UNROLL
      for (uint32_t way = 0; way < ways_max; ++way) {
        found = way == wanted ? word[way] : found;
      }
      return found;
    }

    uint64_t word[ways_max];
  };

  // The place that has the line at this moment, or no_place. That of the ways that a table lacks is
  // no_line, which nobody looks for.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t place_of(uint64_t line, uint32_t first) const {
    const uint32_t has =
        Words(*this, first).which([&](uint64_t word) { return PlaceWord::line(word) == line; });
    return has == 0 ? no_place : first + lowest(has);
  }

  // Whether the place is shut, or there are too many references for one more, so that the word
  // never overflows: half of what it counts for who keeps lines. Those who use one for a moment
  // have a reference a thread, which is fewer than the other half; else they wait.
  [[nodiscard]] HIPPO_ANYWHERE static bool crowded(uint64_t word, Intent intent) {
    const uint64_t most = intent == Intent::keep ? kept_most : kept_most + kept_most / 2;
    return (word & (PlaceWord::references | PlaceWord::shut)) >= most;
  }

  // Takes a reference of a place that had the line a moment ago, and waits until its bytes are
  // there, or its command is seen to be pending: then without a reference. False when the place is
  // another line's now. Of a line that too many keep nobody keeps it, as where no place is left.
  HIPPO_ANYWHERE bool join(uint64_t line, Intent intent, Found& found, Wait& wait) const {
    shared_ref<uint64_t> word = word_at(found.place);
    if ((word.load(relaxed) & PlaceWord::shut) != 0) {  // only looked at: it is to become idle
      found = {Step::spare, no_place, 0};
      return intent == Intent::keep;
    }
    uint64_t now = word.fetch_add(PlaceWord::reference, acquire);
    const bool is_line = PlaceWord::line(now) == line;
    if (!is_line || crowded(now, intent)) {
      word.fetch_sub(PlaceWord::reference, relaxed);
      found = {Step::spare, no_place, 0};
      return is_line && intent == Intent::keep;
    }
    touch(found.place, now);
    found.step = Step::ready;
    while ((now & PlaceWord::busy) != 0) {
      uint32_t slot = 0;
      if (is_pending(found.place, slot)) {
        found.step = Step::settle;
        found.other = 1;
        break;
      }
      if (!wait.again()) {
        found.step = Step::failed;
        found.other = static_cast<uint64_t>(NvmeStatus::aborted);
        break;
      }
      static_cast<void>(polled_if(
          word,
          [&](uint64_t is) { return (is & PlaceWord::busy) == 0 || PlaceWord::line(is) != line; },
          now));
      if (PlaceWord::line(now) != line) {  // its load failed, or was withdrawn
        found.step = Step::failed;
        found.other = shared_ref<uint32_t>(statuses[found.place]).load(relaxed);
        break;
      }
    }
    if (found.step != Step::ready) {
      word.fetch_sub(PlaceWord::reference, release);
    }
    return found.step != Step::failed || found.other != static_cast<uint64_t>(NvmeStatus::success);
  }

  // Finds a place for the line, or pending commands that have one, or a dirty one to be written
  // back first, or, `late`, the spare place. False when the line has come meanwhile, when every
  // place is held, and when somebody else has the set's lock.
  HIPPO_ANYWHERE bool claim(
      uint64_t line, Intent intent, uint32_t set, bool late, Found& found) const {
    shared_ref<uint32_t> lock(sets[set].lock);
    uint32_t open = 0;
    if (lock.load(relaxed) != 0 || !lock.compare_exchange_strong(open, 1, acquire, relaxed)) {
      return false;
    }
    const bool something = claim_locked(line, intent, set, found) ||
                           (late && take_spare(line, intent, set * ways, found));
    if (!something || found.step != Step::spare || found.place == no_place) {
      lock.store(0, release);
    }
    return something;
  }

  HIPPO_ANYWHERE bool claim_locked(uint64_t line, Intent intent, uint32_t set, Found& found) const {
    const uint32_t first = set * ways;
    const Words seen(*this, first);
    if (seen.which([&](uint64_t word) { return PlaceWord::line(word) == line; }) != 0) {
      return false;
    }
    const uint32_t idle = seen.which([](uint64_t word) { return PlaceWord::idle(word); });
    const uint32_t used =
        idle & seen.which([](uint64_t word) { return (word & PlaceWord::used) != 0; });
    const uint32_t dirty = seen.which([](uint64_t word) { return (word & PlaceWord::dirty) != 0; });
    const uint32_t state = sets[set].hand;
    const Clock clock{state & hand_bits, ways};
    uint32_t open = idle & ~dirty;
    if (whole) {  // There is a place for the line: nobody need leave.
      const uint32_t empty =
          open & seen.which([](uint64_t word) { return PlaceWord::line(word) == no_line; });
      open = empty != 0 ? empty : open;
    }
    while (open != 0) {
      const uint32_t way = clock.next(open, used);
      if (take_clean(first + way, seen.of(way), line)) {
        unmark(first, clock.passed(way, open, used));
        const uint32_t claims = (state & ~hand_bits) + hand_bits + 1;
        shared_ref<uint64_t>(keys[first + way]).store(claims / (hand_bits + 1), relaxed);
        sets[set].hand = claims | clock.after(way);
        found.place = first + way;
        found.step = intent == Intent::overwrite ? Step::overwrite : Step::load;
        const bool few = count_ones(open) <= few_clean + 1 && !whole;  // else nothing leaves
        found.other = few ? idle & dirty & ~used : 0;
        count(intent == Intent::overwrite ? counters->overwritten : counters->misses);
        return true;
      }
      open &= ~(1U << way);
    }
    if (intent == Intent::prefetch) {
      return false;
    }
    found.other =
        pending_of(first, seen.which([](uint64_t word) { return (word & PlaceWord::busy) != 0; }));
    if (found.other != 0) {
      found.place = first;
      found.step = Step::settle;
      return true;
    }
    // Where two are on their way already one of them is waited for: else all of a cache that is
    // written faster than the storage takes it would be, a line at a time, and none beside others.
    open = idle & dirty;
    const uint32_t busy =
        places_of_set() & seen.which([](uint64_t word) { return (word & PlaceWord::busy) != 0; });
    if (open == 0 || count_ones(busy) >= 2) {
      return false;
    }
    const uint32_t way = clock.next(open, used);
    found.place = first + way;
    found.step = Step::write_back;
    unmark(first, used);
    sets[set].hand = (state & ~hand_bits) | clock.after(way);  // should this one not be written
    return take_dirty(found.place, found.other, PlaceWord::used);
  }

  // False as long as the line, an idle place or one with a command under way is in the set, or the
  // spare place is another's.
  HIPPO_ANYWHERE bool take_spare(uint64_t line, Intent intent, uint32_t first, Found& found) const {
    const uint32_t others = Words(*this, first).which([&](uint64_t word) {
      return PlaceWord::line(word) != line && (word & PlaceWord::references) != 0 &&
             (word & PlaceWord::busy) == 0;
    });
    if ((others & places_of_set()) != places_of_set()) {
      return false;
    }
    found = {Step::spare, no_place, 0};
    if (intent == Intent::keep) {
      return true;
    }
    found.place = spare();
    if (!take_clean(spare(), PlaceWord::of(no_line, 0), line)) {
      return false;
    }
    count(intent == Intent::overwrite ? counters->overwritten : counters->misses);
    return true;
  }

  static constexpr uint32_t hand_bits = 0xFF;

  // The order in which places of a set are looked at: from the hand on.
  struct Clock {
    uint32_t hand;
    uint32_t ways;

    // The first of `open` without a mark; where all have one, the first.
    [[nodiscard]] HIPPO_ANYWHERE uint32_t next(uint32_t open, uint32_t used) const {
      const uint32_t unmarked = open & ~used;
      const uint32_t way = hand + lowest(turned(unmarked != 0 ? unmarked : open));
      return way >= ways ? way - ways : way;
    }

    [[nodiscard]] HIPPO_ANYWHERE uint32_t after(uint32_t way) const {
      return way + 1 == ways ? 0 : way + 1;
    }

    // The marks that the hand takes away on its way there: where all of `open` had one, it has gone
    // round.
    [[nodiscard]] HIPPO_ANYWHERE uint32_t passed(uint32_t way, uint32_t open, uint32_t used) const {
      const uint32_t from_hand = ~uint32_t{0} << hand;
      const uint32_t before_way = (1U << way) - 1;
      const uint32_t between = way >= hand ? from_hand & before_way : from_hand | before_way;
      return (open & ~used) == 0 ? used : used & between;
    }

   private:
    // With the hand's place as the lowest bit.
    [[nodiscard]] HIPPO_ANYWHERE uint32_t turned(uint32_t bits) const {
      return (bits >> hand) | ((bits << (ways - hand)) & ((1U << ways) - 1));
    }
  };

  HIPPO_ANYWHERE void unmark(uint32_t first, uint32_t marked) const {
    for (; marked != 0; marked &= marked - 1) {
      word_at(first + lowest(marked)).fetch_and(~PlaceWord::used, relaxed);
    }
  }

  // The words of ways that a table lacks say everything of themselves.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t places_of_set() const { return (1U << ways) - 1; }

  // Those of the set's busy places whose commands are pending.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t pending_of(uint32_t first, uint32_t busy) const {
    uint32_t those = 0;
    busy &= places_of_set();
    for (uint32_t slot = 0; busy != 0; busy &= busy - 1) {
      those |= is_pending(first + lowest(busy), slot) ? busy & (0U - busy) : 0U;
    }
    return those;
  }

  static constexpr uint32_t pending_mark = uint32_t{1} << 31U;

  // `seen` is clean and idle.
  HIPPO_ANYWHERE bool take_clean(uint32_t place, uint64_t seen, uint64_t line) const {
    return word_at(place).compare_exchange_strong(
        seen, PlaceWord::of(line, PlaceWord::busy | PlaceWord::reference), acquire, relaxed);
  }
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PLACES_HPP_
