// The cache of an array: lines in the device's memory, found by a hashed table of sets.
//
// A line belongs to one set of up to eight places (ways). One word a place says everything of it:
//
//   bits 0-19 references | 20 busy | 21 dirty | 22 used | 24-63 the line's number, or none
//
// so that one addition takes a reference and tells whose it is. Who finds no place with the line
// takes the set's lock for a moment, looks again, and claims a victim by one compare-and-swap: a
// place without references, by a clock that passes over what was used since it came by, clean ones
// before dirty ones. So a miss is one command however many wait for it. Busy is a place whose bytes
// are being loaded, overwritten as a whole or written back, by one thread (or group of lanes).
//
// Nobody waits for a place while it holds another: src/array/README.md argues from this that
// somebody always gets on, however small the cache.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_CACHE_HPP_
#define HIPPOGRIFF_ARRAY_CACHE_HPP_

#include <hippogriff/array/counting.hpp>
#include <hippogriff/array/queue.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t ways_max = 8;
inline constexpr uint32_t line_shift_min = 9;   // 512 B
inline constexpr uint32_t line_shift_max = 20;  // 1 MiB
inline constexpr uint64_t no_line = (uint64_t{1} << 40U) - 1;
inline constexpr uint32_t view_layout = 2;  // of Cache and what it points to, in memory

// A CPU thread, or a lane for itself. Lanes of a warp: warp.hpp.
struct Alone {
  [[nodiscard]] HIPPO_ANYWHERE static bool leads() { return true; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t rank() { return 0; }

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t size() { return 1; }

  HIPPO_ANYWHERE static void meet() {}

  [[nodiscard]] HIPPO_ANYWHERE static uint32_t told(uint32_t value) { return value; }

  [[nodiscard]] HIPPO_ANYWHERE static uint64_t told(uint64_t value) { return value; }
};

// One place of the table.
struct PlaceWord {
  static constexpr uint64_t reference = 1;
  static constexpr uint64_t references = (uint64_t{1} << 20U) - 1;
  static constexpr uint64_t busy = uint64_t{1} << 20U;
  static constexpr uint64_t dirty = uint64_t{1} << 21U;
  static constexpr uint64_t used = uint64_t{1} << 22U;
  static constexpr uint32_t line_shift = 24;

  HIPPO_ANYWHERE static constexpr uint64_t line(uint64_t word) { return word >> line_shift; }

  HIPPO_ANYWHERE static constexpr uint64_t of(uint64_t line_number, uint64_t rest) {
    return (line_number << line_shift) | rest;
  }

  HIPPO_ANYWHERE static constexpr bool idle(uint64_t word) {
    return (word & (references | busy)) == 0;
  }
};

struct SetState {
  uint32_t lock = 0;
  uint32_t hand = 0;  // guarded by the lock
};

// overwrite: all bytes of the line; prefetch: only where nothing has to be written back for it.
enum class Intent : uint32_t { use, overwrite, prefetch };

// A place with a reference of ours.
struct Held {
  uint32_t place = 0;
  bool fresh = false;  // ours alone, and busy, until dropped: came without a read
  NvmeStatus status = NvmeStatus::success;
};

// A command's slot of a queue, and the memory that it names.
struct Transit {
  uint64_t ticket = 0;
  uint64_t memory = 0;
  uint32_t queue = 0;
  uint32_t blocks = 0;
  uint32_t open = 0;
};

// A line on its way into a place that is busy, the thread's own.
struct Loading {
  Transit transit;
  uint64_t line = 0;
  uint32_t place = 0;
};

// Pointers alone: copied into kernels by value. Thread-safe. Offsets and sizes in bytes.
struct Cache {
  uint64_t* words = nullptr;     // a place each
  uint32_t* statuses = nullptr;  // a place each: why the last load failed
  SetState* sets = nullptr;
  unsigned char* lines = nullptr;
  unsigned char* staging = nullptr;  // a line for a slot of a queue; null: commands name lines
  const QueuePair* queues = nullptr;
  CacheCounters* counters = nullptr;
  AccessCount* accesses = nullptr;  // null: not counted
  uint32_t* sticky = nullptr;       // the first NvmeStatus that was not success, in host's reach
  Patience patience;
  uint64_t size_bytes = 0;  // of the array
  uint32_t set_count = 0;
  uint32_t ways = 0;
  uint32_t line_shift = 0;
  uint32_t queue_count = 0;
  bool writable = false;

  [[nodiscard]] HIPPO_ANYWHERE uint32_t line_bytes() const { return 1U << line_shift; }

  [[nodiscard]] HIPPO_ANYWHERE unsigned char* bytes_of(uint32_t place) const {
    return lines + (uint64_t{place} << line_shift);
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t place_count() const { return set_count * ways; }

  // The line with a reference, loaded unless it is to be overwritten. All of the group call, and
  // hold nothing. After a failure nothing is held.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART Held hold(const Group& group, uint64_t line, Intent intent) const {
    Wait wait(patience);
    count_access(group.leads() ? accesses : nullptr);
    for (;;) {
      Found found;
      if (group.leads()) {
        found = find(line, intent, wait);
      }
      found.step = static_cast<Step>(group.told(static_cast<uint32_t>(found.step)));
      found.place = group.told(found.place);
      found.other = group.told(found.other);
      switch (found.step) {
        case Step::ready:
          return {found.place, false, NvmeStatus::success};
        case Step::overwrite:
          return {found.place, true, NvmeStatus::success};
        case Step::load:
          return {found.place, false, load(group, line, found.place)};
        case Step::failed:
          return {0, false, noted(static_cast<NvmeStatus>(found.other))};
        case Step::write_back:
          found.other = static_cast<uint64_t>(write_back(group, found.other, found.place));
          if (found.other != 0) {
            return {0, false, static_cast<NvmeStatus>(found.other)};
          }
      }
    }
  }

  // Takes a reference if the line is there and needs no wait. One thread.
  [[nodiscard]] HIPPO_ANYWHERE bool try_hold(uint64_t line, uint32_t& place) const {
    place = place_of(line, set_of(line) * ways);
    if (place == no_place) {
      return false;
    }
    const uint64_t old = word_at(place).fetch_add(PlaceWord::reference, acquire);
    if (PlaceWord::line(old) == line && (old & PlaceWord::busy) == 0 && !crowded(old)) {
      touch(place, old);
      count_access(accesses);
      return true;
    }
    word_at(place).fetch_sub(PlaceWord::reference, relaxed);
    return false;
  }

  // Gives the reference back; one thread of the group, after all are done with the bytes. `wrote`:
  // bytes were written.
  HIPPO_ANYWHERE void drop(const Held& held, bool wrote) const {
    shared_ref<uint64_t> word = word_at(held.place);
    if (held.fresh) {
      word.fetch_or(PlaceWord::dirty, relaxed);
      word.fetch_sub(PlaceWord::busy | PlaceWord::reference, release);
      return;
    }
    if (wrote && (word.load(relaxed) & PlaceWord::dirty) == 0) {
      word.fetch_or(PlaceWord::dirty, relaxed);
    }
    word.fetch_sub(PlaceWord::reference, release);
  }

  // Steps of prefetch.hpp, by one thread. Claims a place for the line, which then must be loaded.
  // False when the line is there, or a place cannot be had without waiting.
  [[nodiscard]] HIPPO_ANYWHERE bool try_claim(Loading& loading) const {
    const uint32_t set = set_of(loading.line);
    Found found;
    const bool ours = place_of(loading.line, set * ways) == no_place &&
                      claim(loading.line, Intent::prefetch, set, found);
    loading.place = found.place;
    return ours;
  }

  // Posts the command. False when the array has ended, and when no slot is free: who waits for one
  // must have finished all else that it has begun.
  HIPPO_ANYWHERE bool begin_load(Loading& loading, bool may_wait) const {
    Transit& transit = loading.transit;
    transit = begin(Alone{}, loading.line, loading.place, may_wait);
    if (transit.open != 0) {
      queues[transit.queue].post(transit.ticket, command(transit, Opcode::read, loading.line));
    }
    return transit.open != 0;
  }

  // Gives the line to all when the answer has come: true. A failure is for those who want the line.
  HIPPO_ANYWHERE bool try_finish_load(const Loading& loading) const {
    const Transit& transit = loading.transit;
    const QueuePair queue = queues[transit.queue];
    if (!queue.urge(transit.ticket) || !queue.completed(transit.ticket, patience)) {
      return false;
    }
    const Outcome outcome = queue.outcome(transit.ticket);
    if (settle(Alone{}, transit, loading.place, outcome) == NvmeStatus::success) {
      drop({loading.place, false, NvmeStatus::success}, false);
    }
    return true;
  }

  // Writes the place's line to the storage if it is dirty, waiting until nobody holds it. All of
  // the group call, holding nothing.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART NvmeStatus flush_place(const Group& group, uint32_t place) const {
    uint64_t line = no_line;
    uint32_t status = 0;
    if (group.leads()) {
      Wait wait(patience);
      status = static_cast<uint32_t>(claim_dirty(place, line, wait));
    }
    status = group.told(status);
    line = group.told(line);
    if (status != 0 || line == no_line) {
      return static_cast<NvmeStatus>(status);
    }
    return write_back(group, line, place);
  }

  // Has the storage keep what was written. One thread.
  HIPPO_ANYWHERE NvmeStatus sync() const {
    const QueuePair queue = queues[0];
    uint64_t ticket = 0;
    if (!queue.take(ticket, patience) ||
        !queue.submit(ticket, make_command(Opcode::flush, {0, 0}, 0), patience)) {
      return noted(NvmeStatus::aborted);
    }
    const Outcome outcome = queue.finish(ticket, patience);
    if (outcome.status != NvmeStatus::aborted) {
      queue.let_go(ticket);
    }
    return noted(outcome.status);
  }

  // Remembers a failure for the whole array; returns it.
  HIPPO_ANYWHERE NvmeStatus noted(NvmeStatus status) const {
    if (status != NvmeStatus::success) {
      uint32_t none = 0;
      static_cast<void>(system_ref<uint32_t>(*sticky).compare_exchange_strong(
          none, static_cast<uint32_t>(status), relaxed, relaxed));
    }
    return status;
  }

 private:
  enum class Step : uint32_t { ready, overwrite, load, write_back, failed };

  struct Found {
    Step step = Step::failed;
    uint32_t place = 0;
    uint64_t other = 0;  // write_back: the victim's line; failed: the status
  };

  [[nodiscard]] HIPPO_ANYWHERE shared_ref<uint64_t> word_at(uint32_t place) const {
    return shared_ref<uint64_t>(words[place]);
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t set_of(uint64_t line) const {
    return below(set_count, static_cast<uint32_t>(spread(line) >> 32U));
  }

  // The place that has the line at this moment, or no_place. All words are asked for before one is
  // looked at: on a GPU that is one latency.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t place_of(uint64_t line, uint32_t first) const {
    uint64_t seen[ways_max];
    for (uint32_t way = 0; way < ways_max; ++way) {
      seen[way] = way < ways ? word_at(first + way).load(relaxed) : ~uint64_t{0};
    }
    uint32_t place = no_place;
    for (uint32_t way = 0; way < ways_max; ++way) {
      place = PlaceWord::line(seen[way]) == line ? first + way : place;
    }
    return place;
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t wrapped(uint32_t way) const {
    return way >= ways ? way - ways : way;
  }

  // Half of the references that the word can count: more wait, so that it never overflows.
  [[nodiscard]] HIPPO_ANYWHERE static bool crowded(uint64_t word) {
    return (word & PlaceWord::references) > PlaceWord::references / 2;
  }

  HIPPO_ANYWHERE void touch(uint32_t place, uint64_t seen) const {
    if ((seen & PlaceWord::used) == 0) {
      word_at(place).fetch_or(PlaceWord::used, relaxed);
    }
  }

  // The leader's part of hold: looks until there is something to do for the group.
  HIPPO_ANYWHERE Found find(uint64_t line, Intent intent, Wait& wait) const {
    const uint32_t set = set_of(line);
    for (;;) {
      Found found;
      found.place = place_of(line, set * ways);
      if (found.place != no_place && join(line, found, wait)) {
        return found;
      }
      if (claim(line, intent, set, found)) {
        return found;
      }
      if (!wait.again()) {
        return {Step::failed, 0, static_cast<uint64_t>(NvmeStatus::aborted)};
      }
    }
  }

  // Takes a reference of a place that had the line a moment ago, and waits until its bytes are
  // there. False when the place is another line's now.
  HIPPO_ANYWHERE bool join(uint64_t line, Found& found, Wait& wait) const {
    shared_ref<uint64_t> word = word_at(found.place);
    uint64_t now = word.fetch_add(PlaceWord::reference, acquire);
    if (PlaceWord::line(now) != line || crowded(now)) {
      word.fetch_sub(PlaceWord::reference, relaxed);
      return false;
    }
    touch(found.place, now);
    found.step = Step::ready;
    while ((now & PlaceWord::busy) != 0) {
      if (!wait.again()) {
        found.step = Step::failed;
        found.other = static_cast<uint64_t>(NvmeStatus::aborted);
        break;
      }
      now = word.load(acquire);
      if (PlaceWord::line(now) != line) {  // its load failed
        found.step = Step::failed;
        found.other = shared_ref<uint32_t>(statuses[found.place]).load(relaxed);
        break;
      }
    }
    if (found.step == Step::failed) {
      word.fetch_sub(PlaceWord::reference, release);
    }
    return true;
  }

  // Finds a place for the line, or a dirty one to be written back first. False when the line has
  // come meanwhile, when every place is held, and when somebody else has the set's lock.
  HIPPO_ANYWHERE bool claim(uint64_t line, Intent intent, uint32_t set, Found& found) const {
    shared_ref<uint32_t> lock(sets[set].lock);
    uint32_t open = 0;
    if (lock.load(relaxed) != 0 || !lock.compare_exchange_strong(open, 1, acquire, relaxed)) {
      return false;
    }
    const bool something = claim_locked(line, intent, sets[set], found);
    lock.store(0, release);
    return something;
  }

  HIPPO_ANYWHERE bool claim_locked(uint64_t line,
                                   Intent intent,
                                   SetState& set,
                                   Found& found) const {
    const uint32_t first = static_cast<uint32_t>(&set - sets) * ways;
    if (place_of(line, first) != no_place) {
      return false;
    }
    // All words are asked for before one is looked at, as in place_of. What the clock's hand passes
    // over loses its mark; where all idle places had one, the hand's next is taken.
    uint64_t seen[ways_max];
    for (uint32_t way = 0; way < ways_max; ++way) {
      seen[way] = way < ways ? word_at(first + way).load(relaxed) : 0;
    }
    uint32_t dirty = no_place;
    const uint32_t hand = set.hand;
    for (uint32_t i = 0; i < 2 * ways; ++i) {
      const uint32_t way = wrapped(hand + (i < ways ? i : i - ways));
      uint64_t& word = seen[way];
      if (!PlaceWord::idle(word)) {
        continue;
      }
      const uint32_t place = first + way;
      if ((word & PlaceWord::used) != 0) {
        word_at(place).fetch_and(~PlaceWord::used, relaxed);
        word &= ~PlaceWord::used;
      } else if ((word & PlaceWord::dirty) != 0) {
        dirty = dirty == no_place ? place : dirty;
      } else if (word_at(place).compare_exchange_strong(
                     word,
                     PlaceWord::of(line, PlaceWord::busy | PlaceWord::reference),
                     acquire,
                     relaxed)) {
        set.hand = wrapped(way + 1);
        found.place = place;
        found.step = intent == Intent::overwrite ? Step::overwrite : Step::load;
        count(intent == Intent::overwrite ? counters->overwritten : counters->misses);
        return true;
      }
    }
    if (intent == Intent::prefetch || dirty == no_place || !take_dirty(dirty, found.other)) {
      return false;
    }
    found.place = dirty;
    found.step = Step::write_back;
    return true;
  }

  // Makes a dirty idle place ours: busy, with a reference, and clean from now on: whoever writes
  // after us makes it dirty again.
  HIPPO_ANYWHERE bool take_dirty(uint32_t place, uint64_t& line) const {
    uint64_t word = word_at(place).load(relaxed);
    line = PlaceWord::line(word);
    return PlaceWord::idle(word) && (word & PlaceWord::dirty) != 0 &&
           word_at(place).compare_exchange_strong(
               word,
               (word & ~PlaceWord::dirty) + (PlaceWord::busy | PlaceWord::reference),
               acquire,
               relaxed);
  }

  // Until the place is clean (then `line` stays no_line) or ours to write back.
  HIPPO_ANYWHERE NvmeStatus claim_dirty(uint32_t place, uint64_t& line, Wait& wait) const {
    for (;;) {
      const uint64_t word = word_at(place).load(acquire);
      if ((word & (PlaceWord::dirty | PlaceWord::busy)) == 0) {
        return NvmeStatus::success;
      }
      uint64_t taken = no_line;
      if (take_dirty(place, taken)) {
        line = taken;
        return NvmeStatus::success;
      }
      if (!wait.again()) {
        return noted(NvmeStatus::aborted);
      }
    }
  }

  // Reads the line into the place that is ours and busy, and opens it to others. When the array has
  // ended the place stays busy: a command that nobody answered may still move its bytes.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus load(const Group& group, uint64_t line, uint32_t place) const {
    const Transit transit = begin(group, line, place, true);
    Outcome outcome{NvmeStatus::aborted, 0};
    if (group.leads() && transit.open != 0) {
      outcome = carry_out(transit, Opcode::read, line);
    }
    return noted(settle(group, transit, place, outcome));
  }

  // Brings what the answer tells of into the place.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus
  settle(const Group& group, const Transit& transit, uint32_t place, const Outcome& outcome) const {
    const auto status = static_cast<NvmeStatus>(group.told(static_cast<uint32_t>(outcome.status)));
    const uint64_t from = group.told(outcome.result != 0 ? outcome.result : transit.memory);
    unsigned char* to = bytes_of(place);
    if (status == NvmeStatus::success && from != reinterpret_cast<uint64_t>(to)) {
      copy(group, to, reinterpret_cast<const unsigned char*>(from), transit.blocks * block_bytes);
    }
    group.meet();
    if (group.leads() && status != NvmeStatus::aborted) {
      queues[transit.queue].let_go(transit.ticket);
      if (status == NvmeStatus::success) {
        word_at(place).fetch_sub(PlaceWord::busy, release);
      } else {
        give_up(place, status);
      }
    }
    return status;
  }

  // Writes the place that is ours and busy to the storage, and opens it to others again.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus write_back(const Group& group, uint64_t line, uint32_t place) const {
    const Transit transit = begin(group, line, place, true);
    if (transit.open != 0 && staging != nullptr) {
      copy(group,
           reinterpret_cast<unsigned char*>(transit.memory),
           bytes_of(place),
           transit.blocks * block_bytes);
    }
    group.meet();
    auto status = static_cast<uint32_t>(NvmeStatus::aborted);
    if (group.leads()) {
      if (transit.open != 0) {
        status = static_cast<uint32_t>(carry_out(transit, Opcode::write, line).status);
      }
      if (static_cast<NvmeStatus>(status) != NvmeStatus::aborted) {
        queues[transit.queue].let_go(transit.ticket);
        if (status != 0) {
          word_at(place).fetch_or(PlaceWord::dirty, relaxed);
        }
        word_at(place).fetch_sub(PlaceWord::busy | PlaceWord::reference, release);
        count(counters->written_back);
      }
    }
    return noted(static_cast<NvmeStatus>(group.told(status)));
  }

  template <typename Group>
  HIPPO_ANYWHERE Transit
  begin(const Group& group, uint64_t line, uint32_t place, bool may_wait) const {
    Transit transit;
    transit.queue = below(queue_count, static_cast<uint32_t>(spread(line ^ queue_salt)));
    const uint64_t left = size_bytes - (line << line_shift);
    const uint64_t bytes = left < line_bytes() ? left : line_bytes();
    transit.blocks = static_cast<uint32_t>((bytes + block_bytes - 1) >> block_shift);
    const QueuePair queue = queues[transit.queue];
    if (group.leads()) {
      const bool taken =
          may_wait ? queue.take(transit.ticket, patience) : queue.try_take(transit.ticket);
      transit.open = taken ? 1 : 0;
    }
    transit.open = group.told(transit.open);
    transit.ticket = group.told(transit.ticket);
    transit.memory = reinterpret_cast<uint64_t>(
        staging == nullptr ? bytes_of(place) : staging + staging_offset(transit));
    return transit;
  }

  [[nodiscard]] HIPPO_ANYWHERE uint64_t staging_offset(const Transit& transit) const {
    const QueuePair queue = queues[transit.queue];
    return (uint64_t{transit.queue} * queue.depth + queue.slot_of(transit.ticket)) << line_shift;
  }

  HIPPO_ANYWHERE Command command(const Transit& transit, Opcode opcode, uint64_t line) const {
    const BlockRange blocks{line << (line_shift - block_shift), transit.blocks};
    return make_command(opcode, blocks, transit.memory);
  }

  HIPPO_ANYWHERE Outcome carry_out(const Transit& transit, Opcode opcode, uint64_t line) const {
    const QueuePair queue = queues[transit.queue];
    return queue.submit(transit.ticket, command(transit, opcode, line), patience)
               ? queue.finish(transit.ticket, patience)
               : Outcome{NvmeStatus::aborted, 0};
  }

  // Nobody's line: those who wait for it see that, and why.
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

  template <typename Group>
  HIPPO_ANYWHERE static void copy(const Group& group,
                                  unsigned char* to,
                                  const unsigned char* from,
                                  uint32_t bytes) {
    struct alignas(16) Sixteen {
      uint64_t halves[2];
    };

    if ((reinterpret_cast<uint64_t>(from) | reinterpret_cast<uint64_t>(to)) % 16 == 0) {
      auto* wide_to = reinterpret_cast<Sixteen*>(to);
      const auto* wide_from = reinterpret_cast<const Sixteen*>(from);
      for (uint32_t i = group.rank(); i < bytes / 16; i += group.size()) {
        wide_to[i] = wide_from[i];
      }
    } else {
      for (uint32_t i = group.rank(); i < bytes; i += group.size()) {
        to[i] = from[i];
      }
    }
  }

  HIPPO_ANYWHERE static void count(uint64_t& counter) {
    shared_ref<uint64_t>(counter).fetch_add(1, relaxed);
  }

  static constexpr uint32_t no_place = ~uint32_t{0};
  static constexpr uint64_t queue_salt = 0x9E3779B97F4A7C15U;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_CACHE_HPP_
