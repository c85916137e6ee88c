// Lines that the threads of a group want, each its own, read together.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_FETCH_HPP_
#define HIPPOGRIFF_ARRAY_FETCH_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

// Brings the answers of those in `batch` into their places, one after the other by all.
template <typename Group>
HIPPO_ANYWHERE void bring_all(const Cache& cache,
                              const Group& all,
                              uint32_t batch,
                              const Loading& mine) {
  const QueuePair pair = cache.queue(mine.transit.queue);
  for (; batch != 0; batch &= batch - 1) {
    const uint32_t one = trailing_ones(~uint64_t{batch});
    Loading its = mine;
    its.line = all.told_by(one, mine.line);
    its.place = all.told_by(one, mine.place);
    its.transit.ticket = all.told_by(one, mine.transit.ticket);
    cache.bring(all, its, pair.outcome(its.transit.ticket));
  }
}

// Reads lines, each thread its own where it `wants` one, by commands that are submitted and
// answered together. Only those that are not there and can be had without waiting for others. True:
// the thread's line has come, and it holds it at `place`. All of `all` call; they may hold lines
// meanwhile, since only the controller is waited for, and let go of them before they wait for
// anything else.
template <typename Group>
HIPPO_ANYWHERE HIPPO_APART bool fetch(
    const Cache& cache, const Group& all, uint64_t line, bool wants, uint32_t& place) {
  Loading mine;
  mine.line = line;
  bool to_come = wants && cache.places.try_claim(line, mine.place);
  uint32_t to_do = all.vote(to_come);
  if (to_do == 0) {
    return false;
  }
  // One queue for all: commands that stand beside each other are answered beside each other.
  mine.transit.queue = all.told_by(trailing_ones(~uint64_t{to_do}), cache.queue_of(line));
  const QueuePair pair = cache.queue(mine.transit.queue);
  bool has_come = false;
  while (to_do != 0) {
    const uint32_t waiting = count_ones(to_do);
    const uint32_t count = waiting < pair.depth / 2 ? waiting : pair.depth / 2;
    const uint32_t number = all.before_me(to_do);
    const bool now = to_come && number < count;
    uint64_t first = 0;
    if (!pair.take(all, count, first, cache.patience)) {
      return false;  // the array has ended
    }
    mine.transit.ticket = first + number;
    if (now) {
      pair.write(mine.transit.ticket, cache.command(mine, Opcode::read));
    }
    pair.mark(all, first, count);
    if (!pair.finish(all, first, count, cache.patience)) {
      return false;
    }
    const uint32_t batch = all.vote(now);
    bring_all(cache, all, batch, mine);
    if (now) {
      has_come = cache.settle(mine) == NvmeStatus::success;
      to_come = false;
    }
    to_do &= ~batch;
  }
  place = has_come ? mine.place : place;
  return has_come;
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_FETCH_HPP_
