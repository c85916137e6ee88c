// The cache of an array: lines in the device's memory, read from and written to the storage by
// commands.
//
// Nobody waits for a place while it holds another: src/array/README.md argues from this that
// somebody always gets on, however small the cache.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_CACHE_HPP_
#define HIPPOGRIFF_ARRAY_CACHE_HPP_

#include <hippogriff/array/places.hpp>
#include <hippogriff/array/queue.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t line_shift_min = 9;   // 512 B
inline constexpr uint32_t line_shift_max = 20;  // 1 MiB
inline constexpr uint32_t view_layout = 2;      // of Cache and what it points to, in memory

// A place with a reference of ours.
struct Held {
  uint32_t place = 0;
  bool fresh = false;  // ours alone, and busy, until dropped: came without a read
  NvmeStatus status = NvmeStatus::success;
};

// A command's slot of a queue.
struct Transit {
  uint64_t ticket = 0;
  uint32_t queue = 0;
};

// A line on its way into a place that is busy, the thread's own.
struct Loading {
  Transit transit;
  uint64_t line = 0;
  uint32_t place = 0;
};

// Pointers alone: copied into kernels by value. Thread-safe. Offsets and sizes in bytes.
struct Cache {
  PlaceTable places;
  unsigned char* lines = nullptr;
  unsigned char* staging = nullptr;  // a line for a slot of a queue; null: commands name lines
  QueuePair first_queue;             // each begins where the one before ends
  uint32_t* sticky = nullptr;        // the first NvmeStatus that was not success, in host's reach
  Patience patience;
  uint64_t size_bytes = 0;  // of the array
  uint32_t line_shift = 0;
  uint32_t queue_count = 0;
  bool writable = false;

  [[nodiscard]] HIPPO_ANYWHERE uint32_t line_bytes() const { return 1U << line_shift; }

  [[nodiscard]] HIPPO_ANYWHERE unsigned char* bytes_of(uint32_t place) const {
    return lines + (uint64_t{place} << line_shift);
  }

  [[nodiscard]] HIPPO_ANYWHERE QueuePair queue(uint32_t number) const {
    const QueueLayout layout{first_queue.depth};
    return {first_queue.shared + number * layout.shared_bytes(),
            first_queue.own + number * layout.own_bytes(),
            first_queue.depth};
  }

  // The line with a reference, loaded unless it is to be overwritten. All of the group call, and
  // hold nothing. After a failure nothing is held.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART Held hold(const Group& group, uint64_t line, Intent intent) const {
    Wait wait(patience);
    for (;;) {
      const Found found = find(group, line, intent, wait);
      switch (found.step) {
        case Step::ready:
        case Step::overwrite:
          return {found.place, found.step == Step::overwrite, NvmeStatus::success};
        case Step::load:
          return {found.place, false, load(group, line, found.place)};
        case Step::failed:
          return {0, false, noted(static_cast<NvmeStatus>(found.other))};
        case Step::write_back:
          break;
      }
      const NvmeStatus status = write_back(group, found.other, found.place);
      if (status != NvmeStatus::success) {
        return {0, false, status};
      }
    }
  }

  // Takes a reference if the line is there and needs no wait. One thread.
  [[nodiscard]] HIPPO_ANYWHERE bool try_hold(uint64_t line, uint32_t& place) const {
    return places.try_hold(line, place);
  }

  // Gives the reference back; one thread of the group, after all are done with the bytes. `wrote`:
  // bytes were written.
  HIPPO_ANYWHERE void drop(const Held& held, bool wrote) const {
    if (held.fresh) {
      places.open_and_drop(held.place, true);
    } else {
      places.drop(held.place, wrote);
    }
  }

  // Steps of prefetch.hpp, by one thread, after places.try_claim. Posts the command. False when the
  // array has ended, and when no slot is free: who waits for one must have finished all else that
  // it has begun.
  HIPPO_ANYWHERE bool begin_load(Loading& loading, bool may_wait) const {
    loading.transit.queue = queue_of(loading.line);
    const QueuePair pair = queue(loading.transit.queue);
    uint64_t& ticket = loading.transit.ticket;
    if (!(may_wait ? pair.take(Alone{}, 1, ticket, patience) : pair.try_take(ticket))) {
      return false;
    }
    pair.post(ticket, command(loading, Opcode::read));
    return true;
  }

  // Gives the line to all when the answer has come: true. A failure is for those who want the line.
  HIPPO_ANYWHERE bool try_finish_load(const Loading& loading) const {
    const QueuePair pair = queue(loading.transit.queue);
    const uint64_t ticket = loading.transit.ticket;
    if (!pair.urge(ticket)) {
      return false;
    }
    if (!pair.completed(ticket)) {
      pair.drain(Alone{}, patience);
      if (!pair.completed(ticket)) {
        return false;
      }
    }
    bring(Alone{}, loading, pair.outcome(ticket));
    if (settle(loading) == NvmeStatus::success) {
      places.drop(loading.place, false);
    }
    return true;
  }

  // Brings what the answer tells of into the place. Then settle() by one thread.
  template <typename Group>
  HIPPO_ANYWHERE void bring(const Group& group,
                            const Loading& loading,
                            const Outcome& outcome) const {
    unsigned char* to = bytes_of(loading.place);
    const auto* from = outcome.result != 0 ? reinterpret_cast<const unsigned char*>(outcome.result)
                                           : memory_of(loading);
    if (outcome.status == NvmeStatus::success && from != to) {
      copy(group, to, from, blocks_of(loading.line) * block_bytes);
    }
    group.meet();
  }

  // Lets go of the slot and opens the place to all, keeping our reference; after a failure it is
  // nobody's.
  HIPPO_ANYWHERE NvmeStatus settle(const Loading& loading) const {
    const QueuePair pair = queue(loading.transit.queue);
    const NvmeStatus status = pair.outcome(loading.transit.ticket).status;
    pair.let_go(loading.transit.ticket);
    if (status == NvmeStatus::success) {
      places.open(loading.place);
    } else {
      places.give_up(loading.place, status);
    }
    return status;
  }

  // Writes the place's line to the storage if it is dirty, waiting until nobody holds it. All of
  // the group call, holding nothing.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART NvmeStatus flush_place(const Group& group, uint32_t place) const {
    uint64_t line = no_line;
    bool goes_on = true;
    if (group.leads()) {
      Wait wait(patience);
      goes_on = places.claim_dirty(place, line, wait);
    }
    if (!group.told(goes_on)) {
      return noted(NvmeStatus::aborted);
    }
    line = group.told(line);
    return line == no_line ? NvmeStatus::success : write_back(group, line, place);
  }

  // Has the storage keep what was written. One thread.
  HIPPO_ANYWHERE NvmeStatus sync() const {
    const QueuePair pair = queue(0);
    uint64_t ticket = 0;
    if (!pair.take(Alone{}, 1, ticket, patience)) {
      return noted(NvmeStatus::aborted);
    }
    pair.post(ticket, make_command(Opcode::flush, {0, 0}, 0));
    if (!pair.finish(Alone{}, ticket, 1, patience)) {
      return noted(NvmeStatus::aborted);
    }
    const NvmeStatus status = pair.outcome(ticket).status;
    pair.let_go(ticket);
    return noted(status);
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

  // Whose queue a line's commands go to, when they go alone.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t queue_of(uint64_t line) const {
    return below(queue_count, static_cast<uint32_t>(spread(line ^ queue_salt)));
  }

  // The command for a line that has its place and its ticket.
  [[nodiscard]] HIPPO_ANYWHERE Command command(const Loading& loading, Opcode opcode) const {
    const BlockRange blocks{loading.line << (line_shift - block_shift), blocks_of(loading.line)};
    return make_command(opcode, blocks, reinterpret_cast<uint64_t>(memory_of(loading)));
  }

 private:
  // The leader looks, until there is something to do for the group.
  template <typename Group>
  HIPPO_ANYWHERE Found find(const Group& group, uint64_t line, Intent intent, Wait& wait) const {
    Found found;
    if (group.leads()) {
      found = places.find(line, intent, wait);
    }
    found.step = static_cast<Step>(group.told(static_cast<uint32_t>(found.step)));
    found.place = group.told(found.place);
    found.other = group.told(found.other);
    return found;
  }

  // Reads the line into the place that is ours and busy, and opens it to others. When the array has
  // ended the place stays busy: a command that nobody answered may still move its bytes.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus load(const Group& group, uint64_t line, uint32_t place) const {
    Loading loading{{0, queue_of(line)}, line, place};
    const QueuePair pair = queue(loading.transit.queue);
    uint64_t& ticket = loading.transit.ticket;
    if (!pair.take(group, 1, ticket, patience) || !carry_out(group, loading, Opcode::read)) {
      return noted(NvmeStatus::aborted);
    }
    const Outcome outcome = pair.outcome(ticket);
    bring(group, loading, outcome);
    if (group.leads()) {
      settle(loading);
    }
    return noted(outcome.status);
  }

  // Writes the place that is ours and busy to the storage, and opens it to others again.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus write_back(const Group& group, uint64_t line, uint32_t place) const {
    Loading loading{{0, queue_of(line)}, line, place};
    const QueuePair pair = queue(loading.transit.queue);
    uint64_t& ticket = loading.transit.ticket;
    if (!pair.take(group, 1, ticket, patience)) {
      return noted(NvmeStatus::aborted);
    }
    if (staging != nullptr) {
      copy(group, memory_of(loading), bytes_of(place), blocks_of(line) * block_bytes);
      group.meet();
    }
    if (!carry_out(group, loading, Opcode::write)) {
      return noted(NvmeStatus::aborted);
    }
    const NvmeStatus status = pair.outcome(ticket).status;
    group.meet();  // all have looked
    if (group.leads()) {
      pair.let_go(ticket);
      places.open_and_drop(place, status != NvmeStatus::success);
      PlaceTable::count(places.counters->written_back);
    }
    return noted(status);
  }

  // False when the array has ended.
  template <typename Group>
  HIPPO_ANYWHERE bool carry_out(const Group& group, const Loading& loading, Opcode opcode) const {
    const QueuePair pair = queue(loading.transit.queue);
    const uint64_t ticket = loading.transit.ticket;
    if (group.leads()) {
      pair.post(ticket, command(loading, opcode));
    }
    return pair.finish(group, ticket, 1, patience);
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t blocks_of(uint64_t line) const {
    const uint64_t left = size_bytes - (line << line_shift);
    const uint64_t bytes = left < line_bytes() ? left : line_bytes();
    return static_cast<uint32_t>((bytes + block_bytes - 1) >> block_shift);
  }

  // What the command names: the slot's staging memory, or the line itself.
  [[nodiscard]] HIPPO_ANYWHERE unsigned char* memory_of(const Loading& loading) const {
    if (staging == nullptr) {
      return bytes_of(loading.place);
    }
    const uint64_t slot = first_queue.slot_of(loading.transit.ticket);
    return staging + ((uint64_t{loading.transit.queue} * first_queue.depth + slot) << line_shift);
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
      const uint32_t step = group.size();
      uint32_t i = group.rank();
      for (; i + 3 * step < bytes / 16; i += 4 * step) {  // four latencies at once
        Sixteen four[4];
        HIPPO_UNROLL
        for (uint32_t k = 0; k < 4; ++k) {
          four[k] = wide_from[i + k * step];
        }
        HIPPO_UNROLL
        for (uint32_t k = 0; k < 4; ++k) {
          wide_to[i + k * step] = four[k];
        }
      }
      for (; i < bytes / 16; i += step) {
        wide_to[i] = wide_from[i];
      }
    } else {
      for (uint32_t i = group.rank(); i < bytes; i += group.size()) {
        to[i] = from[i];
      }
    }
  }

  static constexpr uint64_t queue_salt = 0x9E3779B97F4A7C15U;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_CACHE_HPP_
