// Commands that nobody waits for: reads asked for ahead, and lines written off the critical path.
//
// Who posts one goes away. Its place stays busy, its slot taken, and both know of each other: the
// place's status word names the slot, the slot's PendingWord the place. Whoever waits for the
// place, or for any place of its set, looks whether the answer has come, takes the word by one
// compare-and-swap, moves the bytes, lets go of the slot and opens the place; so does who finds the
// slot in his way when he posts another. While the word is taken the slot cannot be let go, so its
// turn says which ticket it is. Nobody waits while he settles or posts. These commands have queues
// of their own, whose slots nobody waits for.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_PENDING_HPP_
#define HIPPOGRIFF_ARRAY_PENDING_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

// One thread: takes the word of a slot, counted through all queues, if its command has been
// answered.
HIPPO_ANYWHERE inline bool Cache::claim_answered(uint32_t slot, Loading& its, Opcode& what) const {
  its.transit.queue = slot / first_queue.depth;
  const QueuePair pair = queue(its.transit.queue);
  const uint32_t number = pair.slot_of(slot);
  shared_ref<uint64_t> word(pair.slot(number).pending);
  shared_ref<uint64_t> turn(pair.slot(number).turn);
  uint64_t pending = word.load(relaxed);
  if ((pending & PendingWord::waiting) == 0 || pair.slot_of(turn.load(relaxed)) == number ||
      !word.compare_exchange_strong(pending, PendingWord::taken, acquire, relaxed)) {
    return false;
  }
  const uint64_t answered = turn.load(acquire);
  if (pair.slot_of(answered) == number) {  // meanwhile it is another command's, for the same place
    word.store(pending, release);
    return false;
  }
  its.transit.ticket = answered - 1;
  its.place = PendingWord::place(pending);
  its.line = places.line_at(its.place);
  what = PendingWord::opcode(pending);
  return true;
}

// By all of the group. True: the command has been answered, and its place is open. The line that is
// `wanted` is `kept` then, with a reference. A read that failed was nobody's: who wants the line
// asks again. A write that failed leaves the line dirty; whoever answered has noted it as the
// array's failure: when it is settled somebody may have cleared that already.
template <typename Group>
HIPPO_ANYWHERE Cache::Settled Cache::settle(const Group& group,
                                            uint32_t slot,
                                            uint64_t wanted) const {
  const QueuePair pair = queue(slot / first_queue.depth);
  QueueSlot& its_slot = pair.slot(pair.slot_of(slot));
  Loading its;
  Opcode what = Opcode::read;
  bool ours = group.told(group.leads() && claim_answered(slot, its, what));
  if (!ours) {
    if (group.leads()) {
      static_cast<void>(pair.urge(shared_ref<uint64_t>(its_slot.turn).load(relaxed)));
    }
    pair.drain(group, patience);
    ours = group.told(group.leads() && claim_answered(slot, its, what));
    if (!ours) {
      return {};
    }
  }
  its = {{group.told(its.transit.ticket), slot / first_queue.depth},
         group.told(its.line),
         group.told(its.place)};
  what = static_cast<Opcode>(group.told(static_cast<uint32_t>(what)));
  if (what == Opcode::read) {
    move(group, group.vote(group.leads()), its, what);
  }
  bool keeps = false;
  if (group.leads()) {
    const NvmeStatus status = pair.outcome(its.transit.ticket).status;
    shared_ref<uint64_t>(its_slot.pending).store(0, relaxed);
    places.forget_pending(its.place);
    if (what == Opcode::write) {
      static_cast<void>(settle<Opcode::write>(its));
    } else if (status != NvmeStatus::success) {
      pair.let_go(its.transit.ticket);
      places.withdraw(its.place);
    } else {
      keeps = its.line == wanted;
      static_cast<void>(settle<Opcode::read>(its));
      if (!keeps) {
        places.drop(its.place, false);
      }
    }
  }
  return {true, group.told(keeps ? its.place : no_place)};
}

// Settles what was found pending; waits until one of them is, by whomever.
template <typename Group>
HIPPO_ANYWHERE HIPPO_APART Cache::Settled Cache::settle_any(const Group& group,
                                                            const Found& found,
                                                            uint64_t wanted) const {
  const auto those = static_cast<uint32_t>(found.other);
  for (Wait wait(patience);;) {
    bool some = false;
    for (uint32_t left = those; left != 0; left &= left - 1) {
      uint32_t slot = 0;
      if (!group.told(group.leads() && places.is_pending(found.place + lowest(left), slot))) {
        some = true;
        continue;
      }
      const Settled settled = settle(group, group.told(slot), wanted);
      if (settled.kept != no_place) {
        return settled;
      }
      some = some || settled.goes_on;
    }
    if (some || !group.told(group.leads() && rest_beside(found.place + lowest(those), wait))) {
      return {some, no_place};
    }
  }
}

// One thread; as Wait::again(). A CPU thread sleeps until the answer comes.
HIPPO_ANYWHERE inline bool Cache::rest_beside(uint32_t place, Wait& wait) const {
  uint32_t slot = 0;
  if (places.is_pending(place, slot)) {
    const QueuePair pair = queue(slot / first_queue.depth);
    const uint32_t number = pair.slot_of(slot);
    const uint64_t turn = shared_ref<uint64_t>(pair.slot(number).turn).load(relaxed);
    if (pair.slot_of(turn) == number) {
      return pair.rest(turn, wait);
    }
  }
  return wait.again();
}

// Whether the queue has room for so many commands that nobody waits for. What stands there answered
// is settled first.
template <typename Group>
HIPPO_ANYWHERE bool Cache::has_room(const Group& group, uint32_t number, uint32_t count) const {
  constexpr uint32_t most = 32;
  const QueuePair pair = queue(number);
  const uint32_t last = (count < pair.depth / 2 ? count : pair.depth / 2) - 1;
  const uint64_t next =
      group.told(group.leads() ? shared_ref<uint64_t>(pair.state().ticket).load(relaxed) : 0);
  const bool has = group.told(group.leads() && pair.has_room(next) && pair.has_room(next + last));
  for (uint32_t i = 0; !has && i < most && i < pair.depth; ++i) {
    if (!settle(group, number * pair.depth + pair.slot_of(next + i), no_line).goes_on && i > 1) {
      break;
    }
  }
  return has || group.told(group.leads() && pair.has_room(next) && pair.has_room(next + last));
}

// What `leave` does with the slot of a ticket; the command is to be marked.
template <Opcode What>
HIPPO_ANYWHERE void Cache::write_pending(const QueuePair& pair, const Loading& mine) const {
  const uint32_t slot = pair.slot_of(mine.transit.ticket);
  pair.write(mine.transit.ticket, command(mine, What));
  places.note_pending(mine.place, mine.transit.queue * pair.depth + slot);
  shared_ref<uint64_t>(pair.slot(slot).pending).store(PendingWord::of(mine.place, What), release);
}

// Posts a command for each of the group that `has` a place that is busy and its own, and leaves it
// to whoever comes by: true. False for those that got no slot: they still have their place. The
// queue is given, the same for all.
template <Opcode What, typename Group>
HIPPO_ANYWHERE bool Cache::leave(const Group& group, bool has, Loading& mine) const {
  const uint32_t to_do = group.vote(has);
  const QueuePair pair = queue(mine.transit.queue);
  const uint32_t asked = count_ones(to_do) < pair.depth / 2 ? count_ones(to_do) : pair.depth / 2;
  uint64_t first = 0;
  uint32_t count = 0;
  for (uint32_t tries = 0; tries < 4 && asked != 0 && count == 0; ++tries) {  // others are faster
    count = pair.try_take(group, asked, first);
  }
  if (count == 0) {
    return false;
  }
  const uint32_t number = group.before_me(to_do);
  const bool now = has && number < count;
  mine.transit.ticket = first + number;
  if (What == Opcode::write && staging != nullptr) {
    move(group, group.vote(now), mine, What);
  }
  if (now) {
    write_pending<What>(pair, mine);
  }
  pair.mark(group, first, count);
  // Who has the tail's lock may have gone by already. If all of this fails the next one in this
  // queue sees to it, or who waits.
  if (!group.told(group.leads() && pair.urge(first + count - 1))) {
    pair.drain(group, patience);
    if (group.leads()) {
      static_cast<void>(pair.urge(first + count - 1));
    }
  }
  return now;
}

template <typename Group>
HIPPO_ANYWHERE HIPPO_APART bool Cache::ask_ahead(const Group& group,
                                                 uint64_t line,
                                                 bool wants) const {
  wants = wants && places.place_with(line) == no_place;
  const uint32_t missing = group.vote(wants);
  if (missing == 0) {
    return true;
  }
  Loading mine;
  mine.line = line;
  mine.transit.queue = group.told_by(lowest(missing), pending_queue_of(line));
  if (!has_room(group, mine.transit.queue, 1)) {
    return false;
  }
  Found found;
  const bool claimed = wants && places.try_claim(line, found);
  mine.place = found.place;
  const bool left = leave<Opcode::read>(group, claimed, mine);
  if (claimed && !left) {
    places.withdraw(mine.place);
  }
  return group.vote(claimed && !left) == 0;
}

// Begins to write the line of the place, if that was `claimed` by the leader, and cold dirty ones
// around it that nobody holds. False: not that of the leader, who still has its place.
template <typename Group>
HIPPO_ANYWHERE bool Cache::begin_writes(const Group& group,
                                        uint64_t line,
                                        uint32_t place,
                                        bool claimed) const {
  const uint32_t number = pending_queue_of(place);
  if (!has_room(group, number, group.size())) {  // else those of a group would go piece by piece
    return false;
  }
  Loading mine{{0, number}, line, place};
  const bool has = take_around(group, claimed, true, 0, mine);
  const bool is_claimed = claimed && has && mine.place == place;
  const bool left = leave<Opcode::write>(group, has, mine);
  if (has && !left && !is_claimed) {
    places.open_and_drop(mine.place, true);
  }
  return group.vote(is_claimed && left) != 0;
}

// One thread: begins to write a line whose place is busy and its own, and cold dirty ones around it
// that nobody holds, side by side in one queue, `most` of them in all (1 to begun_most). How many;
// 0: no slot was free, and the place is still its own.
HIPPO_ANYWHERE inline uint32_t Cache::begin_around(const Loading& first, uint32_t most) const {
  constexpr uint32_t tries_max = 4;  // others are faster
  const uint32_t together = lines_together(begun_most);
  Loading those[begun_most] = {first};
  uint32_t count = 1;
  const uint64_t begin = first.line - first.line % together;
  for (uint64_t line = begin;
       count < most && line < begin + together && line << line_shift < size_bytes;
       ++line) {
    const uint32_t place = line != first.line ? places.place_with(line) : no_place;
    if (place != no_place && places.take_dirty(place, those[count].line, 0)) {
      those[count++].place = place;
    }
  }
  const uint32_t number = pending_queue_of(first.line);
  const QueuePair pair = queue(number);
  static_cast<void>(
      has_room(Alone{}, number, count));  // settles; fewer slots than all are good too
  const uint32_t asked = count < pair.depth / 2 ? count : pair.depth / 2;
  uint64_t ticket = 0;
  uint32_t taken = 0;
  for (uint32_t tries = 0; tries < tries_max && taken == 0; ++tries) {
    taken = pair.try_take_run(asked, ticket);
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (i < taken) {
      those[i].transit = {ticket + i, number};
      if (staging != nullptr) {
        move(Alone{}, 1, those[i], Opcode::write);
      }
      write_pending<Opcode::write>(pair, those[i]);
    } else if (i != 0) {
      places.open_and_drop(those[i].place, true);
    }
  }
  if (taken != 0) {
    pair.mark(Alone{}, ticket, taken);
    if (!pair.urge(ticket + taken - 1)) {
      pair.drain(Alone{}, patience);
      static_cast<void>(pair.urge(ticket + taken - 1));
    }
  }
  return taken;
}

// The same by one thread, begun_most lines at most; a GPU's, which would move the bytes alone,
// begins one.
HIPPO_ANYWHERE inline bool Cache::begin_writes([[maybe_unused]] const Alone& group,
                                               uint64_t line,
                                               uint32_t place,
                                               bool claimed) const {
#ifdef __CUDA_ARCH__
  return begin_writes<Alone>(group, line, place, claimed);
#else
  const uint32_t count = places.place_count();
  uint32_t begun = 0;
  bool looks = true;  // around each, until one is alone: then others are, too
  for (uint32_t i = 0; i < begun_most && i < count && begun < begun_most; ++i) {
    const bool is_ours = i == 0 && claimed;
    Loading mine{{}, line, place + i < count ? place + i : place + i - count};
    if (!is_ours && !places.take_dirty(mine.place, mine.line, 0)) {
      continue;
    }
    const uint32_t some = begin_around(mine, looks ? begun_most - begun : 1);
    if (some == 0) {
      if (!is_ours) {
        places.open_and_drop(mine.place, true);
      }
      return i != 0;
    }
    begun += some;
    looks = looks && some > 1;
  }
  return true;
#endif
}

template <typename Group>
HIPPO_ANYWHERE HIPPO_APART void Cache::write_cold(const Group& group,
                                                  uint32_t place,
                                                  uint32_t ways) const {
  const uint32_t way = place % places.ways;
  const uint32_t later = ways & ~((2U << way) - 1);  // the clock comes to those first
  const uint32_t coldest = place - way + lowest(later != 0 ? later : ways);
  const uint64_t line = group.told(group.leads() ? places.line_at(coldest) : 0);
  if (line != no_line) {
    static_cast<void>(begin_writes(group, line, coldest, false));
  }
}

// Begins to write the line of a place that the leader has claimed, and others around it; or, where
// that cannot be or it `waits`, writes them.
template <typename Group>
HIPPO_ANYWHERE HIPPO_APART NvmeStatus
Cache::make_clean(const Group& group, uint64_t line, uint32_t place, bool waits) const {
  if (!waits && begin_writes(group, line, place, true)) {
    return NvmeStatus::success;
  }
  return write_back(group, line, place);
}

// The lines of `bytes`, at least one, from `offset` on, by all of the group; see Cache::ask_ahead.
template <typename Group>
HIPPO_ANYWHERE void prefetch_bytes(const Cache& cache,
                                   const Group& group,
                                   uint64_t offset,
                                   uint64_t bytes) {
  const uint64_t last = (offset + bytes - 1) >> cache.line_shift;
  for (uint64_t first = offset >> cache.line_shift; first <= last; first += group.size()) {
    const uint64_t line = first + group.rank();
    if (!cache.ask_ahead(group, line, line <= last)) {
      return;
    }
  }
}

#ifdef __CUDACC__

// Lanes that happen to be here together, each its own bytes, of a line or two.
__device__ inline void coalesced_prefetch(const Cache& cache, uint64_t offset, uint64_t bytes) {
  const Lanes all = Lanes::here(cache.zero);
  const uint64_t first = offset >> cache.line_shift;
  const uint64_t last = (offset + bytes - 1) >> cache.line_shift;
  static_cast<void>(cache.ask_ahead(all, first, all.with_same(first).leads()));
  if (all.vote(last != first) != 0) {
    static_cast<void>(cache.ask_ahead(all, last, all.with_same(last).leads()));
  }
}

#endif  // __CUDACC__

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_PENDING_HPP_
