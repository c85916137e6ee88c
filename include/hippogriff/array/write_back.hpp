// Lines that are written back: together with the dirty ones around them, and all by a flush.
//
// Lines that lie behind each other in the storage are in places that do not: the table scatters
// them. Who has to write one looks for the others, so that their commands stand side by side and
// become one request of the drive, under one lock of the file.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_WRITE_BACK_HPP_
#define HIPPOGRIFF_ARRAY_WRITE_BACK_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

// How many lines behind each other are written together, of so many: what a drive does not move
// faster in larger pieces.
HIPPO_ANYWHERE inline uint32_t Cache::lines_together(uint32_t most) const {
  constexpr uint32_t bytes_shift = 19;
  const uint32_t fit = line_shift < bytes_shift ? 1U << (bytes_shift - line_shift) : 1;
  return fit < most ? fit : most;
}

// Claims a dirty place that nobody holds for each of the group: that of its own among the lines
// around that of `mine`, which is the same for all, or, where that line is alone, or they are more
// than are written together, and may look `beside`, one beside the place. Those with a mark only
// where that is given. The place itself, if it was `claimed`, goes to the thread whose line it has.
template <typename Group>
HIPPO_ANYWHERE bool Cache::take_around(
    const Group& group, bool claimed, bool beside, uint64_t marks, Loading& mine) const {
  const uint32_t together = lines_together(group.size());
  const uint32_t claimer = static_cast<uint32_t>(mine.line) % together;
  const uint32_t other = mine.place - mine.place % group.size() + group.rank();
  bool has = claimed && group.rank() == claimer;
  if (!has && group.rank() < together) {
    mine.line = mine.line - claimer + group.rank();
    mine.place = mine.line << line_shift < size_bytes ? places.place_with(mine.line) : no_place;
    has = mine.place != no_place && places.take_dirty(mine.place, mine.line, marks);
  }
  const bool is_alone = count_ones(group.vote(has)) <= 1;
  if (!has && beside && (is_alone || group.rank() >= together)) {
    mine.place = other;
    has = other < places.place_count() && places.take_dirty(other, mine.line, marks);
  }
  return has;
}

// Writes the line of the place that the leader has claimed, and those around it, and waits for
// that. The status is that of the claimed one.
template <typename Group>
HIPPO_ANYWHERE NvmeStatus Cache::write_back(const Group& group,
                                            uint64_t line,
                                            uint32_t place) const {
  Loading mine{{}, line, place};
  const bool has = take_around(group, true, false, 0, mine);
  NvmeStatus status = NvmeStatus::aborted;
  static_cast<void>(carry_out<Opcode::write>(group, has, mine, status));
  const uint32_t claimer = lowest(group.vote(has && mine.place == place));
  return noted(group.told_by(claimer, status));
}

template <typename Group>
HIPPO_ANYWHERE HIPPO_APART NvmeStatus Cache::flush_places(const Group& group,
                                                          uint32_t first) const {
  if (!keeps_writes) {
    return NvmeStatus::success;
  }
  group.meet();  // whoever came first would hold a place that the others may still wait for
  const uint32_t own = first + group.rank();
  const bool is_one = own < places.place_count();
  uint64_t line = 0;
  NvmeStatus status = NvmeStatus::success;
  uint32_t left = group.vote(is_one && places.is_dirty(own, line));
  while (left != 0) {
    Loading mine{{}, group.told_by(lowest(left), line), group.told_by(lowest(left), own)};
    const bool has = take_around(group, false, true, PlaceWord::used, mine);
    NvmeStatus its = NvmeStatus::success;
    if (!carry_out<Opcode::write>(group, has, mine, its)) {
      return noted(NvmeStatus::aborted);
    }
    status = status == NvmeStatus::success ? noted(its) : status;
    left &= left - 1;
    left &= group.vote(is_one && places.is_dirty(own, line));
  }
  for (left = group.vote(is_one); left != 0; left &= left - 1) {
    const NvmeStatus its = flush_in_turn(group, group.told_by(lowest(left), own));
    status = status == NvmeStatus::success ? its : status;
    if (its == NvmeStatus::interrupted) {
      break;  // each of the others could take as long
    }
  }
  return status;
}

HIPPO_ANYWHERE inline NvmeStatus Cache::sync() const {
  const QueuePair pair = queue(0);
  Patience long_patience = patience;
  constexpr uint64_t most = ~uint64_t{0};
  long_patience.limit_ns = patience.limit_ns < most / 60 ? 60 * patience.limit_ns : most;
  uint64_t ticket = 0;
  if (!pair.take(Alone{}, 1, ticket, patience)) {
    return noted(NvmeStatus::aborted);
  }
  pair.post(ticket, make_command(Opcode::flush, {0, 0}, 0));
  if (!pair.finish(Alone{}, ticket, 1, long_patience)) {
    return noted(NvmeStatus::aborted);
  }
  const NvmeStatus status = pair.outcome(ticket).status;
  pair.let_go(ticket);
  return noted(status);
}

// Writes a place when nobody holds it, if it is dirty then. Where somebody always does, it is shut
// for a moment at a time: who came before lets go, unless it keeps the line, and others wait.
template <typename Group>
HIPPO_ANYWHERE NvmeStatus Cache::flush_in_turn(const Group& group, uint32_t place) const {
  bool shuts = false;
  for (Wait wait(patience, WhenLate::gives_up);;) {
    Found found{Step::wait, place, 0};
    if (group.leads()) {
      found = places.claim_dirty(place);
      const bool shut = found.step == Step::wait && wait.rounds() / held_pauses % 8 == 1;
      if (shut != shuts) {
        places.shut(place, shut);
        shuts = shut;
      }
    }
    found.step = static_cast<Step>(group.told(static_cast<uint32_t>(found.step)));
    if (found.step == Step::ready) {
      return NvmeStatus::success;
    }
    if (found.step == Step::write_back) {
      return write_back(group, group.told(found.other), place);
    }
    found.other = 1;
    const bool goes_on = found.step == Step::settle ? settle_any(group, found, no_line).goes_on
                                                    : group.told(group.leads() && wait.again());
    if (!goes_on) {
      if (shuts) {
        places.shut(place, false);
      }
      const bool late = group.told(group.leads() && patience.ended() == Ending::none);
      return late ? NvmeStatus::interrupted : noted(NvmeStatus::aborted);
    }
  }
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_WRITE_BACK_HPP_
