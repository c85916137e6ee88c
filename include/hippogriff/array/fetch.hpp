// Lines that the threads of a group want, each its own, read together.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_FETCH_HPP_
#define HIPPOGRIFF_ARRAY_FETCH_HPP_

#include <hippogriff/array/cache.hpp>

namespace hippogriff::ondemand {

// Reads lines, each thread its own where it `wants` one, by commands that are submitted and
// answered together. Only those that are not there and can be had without waiting for others. True:
// the thread's line has come, and it holds it at `place`. All of `all` call; they may hold lines
// meanwhile, since only the controller is waited for, and let go of them before they wait for
// anything else.
template <typename Group>
HIPPO_ANYWHERE HIPPO_APART bool fetch(
    const Cache& cache, const Group& all, uint64_t line, bool wants, uint32_t& place) {
  Found found;
  const bool claimed = wants && cache.places.try_claim(line, found);
  Loading mine{{}, line, found.place};
  NvmeStatus status = NvmeStatus::aborted;
  if (!cache.carry_out<Opcode::read>(all, claimed, mine, status)) {
    return false;
  }
  const bool has_come = claimed && status == NvmeStatus::success;
  place = has_come ? mine.place : place;
  count_access(has_come ? cache.accesses : nullptr);
  const auto cold = claimed ? static_cast<uint32_t>(found.other) : 0U;
  const uint32_t pressed = all.vote(cold != 0);
  if (pressed != 0) {
    const uint32_t one = lowest(pressed);
    cache.write_cold(all, all.told_by(one, mine.place), all.told_by(one, cold));
  }
  return has_come;
}

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_FETCH_HPP_
