// An NVMe queue pair that any number of threads submit to, with short critical sections (BaM §3.3).
//
// A ticket names a slot and a turn. Turn words say whose turn a slot is: `t` when ticket t may
// write its command, t + 1 when t's completion has come, t + depth when t has let go. A mark says
// that the command is written; whoever has the tail's lock moves the tail past all marks there are
// and rings the doorbell once for them. Completions are taken in their order by whoever has the
// head's lock, and handed to the slots, where their owners wait. A slot stays its owner's until it
// lets go, so the slot's number is the command's identifier, and what belongs to a slot (staging
// memory, the record of a failure) needs no lock of its own.
//
// The completion queue is twice as deep as the submission queue: it cannot be full, since each slot
// has at most one completion. All counters are 64 bits and wrap: they are compared by differences,
// and depth is a power of two. src/array/model/queue.pml is the protocol for spin.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_QUEUE_HPP_
#define HIPPOGRIFF_ARRAY_QUEUE_HPP_

#include <hippogriff/array/nvme.hpp>
#include <hippogriff/array/waiting.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t queue_depth_min = 4;
inline constexpr uint32_t queue_depth_max = 1U << 15U;

// What a failed command leaves beside its status.
struct FailureRecord {
  uint64_t offset = 0;  // in the array's bytes
  uint32_t errno_value = 0;
  uint32_t status = 0;
};

struct QueueSlot {
  uint64_t turn = 0;
  uint64_t result = 0;
  uint32_t status = 0;
  uint32_t sleeping = 0;  // its owner, a CPU thread
};

// The submitters' own words; each that is fought for has a cache line.
struct QueueState {
  alignas(128) uint64_t ticket = 0;
  alignas(128) uint64_t tail = 0;  // the controller was told of all before
  uint64_t submission_head = 0;    // it has fetched all before
  uint32_t tail_lock = 0;
  alignas(128) uint64_t completion_head = 0;
  uint32_t head_lock = 0;
};

// The word on which a controller's thread sleeps.
struct WakeWord {
  alignas(64) uint32_t sleeping = 0;
};

struct Outcome {
  NvmeStatus status = NvmeStatus::success;
  uint64_t result = 0;  // an address to copy from; 0: the data is at prp1
};

// Pointers alone: copied into kernels by value. Thread-safe.
struct QueuePair {
  // In memory that host and device reach.
  Command* commands = nullptr;
  Completion* completions = nullptr;
  Doorbells* doorbells = nullptr;
  FailureRecord* failures = nullptr;  // a slot each
  WakeWord* wake = nullptr;           // null: nobody sleeps, as where submitters are a GPU's
  // In the submitters' memory.
  QueueState* state = nullptr;
  QueueSlot* slots = nullptr;
  uint64_t* marks = nullptr;  // a bit a slot
  uint32_t depth = 0;

  [[nodiscard]] HIPPO_ANYWHERE uint32_t slot_of(uint64_t ticket) const {
    return static_cast<uint32_t>(ticket) & (depth - 1);
  }

  // Takes a ticket and waits until its slot is free: back-pressure when the queue is full. False
  // when the array has ended. What was taken must be submitted, or the array ended.
  HIPPO_ANYWHERE bool take(uint64_t& ticket, const Patience& patience) const {
    ticket = shared_ref<uint64_t>(state->ticket).fetch_add(1, relaxed);
    shared_ref<uint64_t> turn(slots[slot_of(ticket)].turn);
    Wait wait(patience);
    while (turn.load(acquire) != ticket) {
      drain(patience);
      if (!wait.again()) {
        return false;
      }
    }
    return true;
  }

  // Takes a ticket whose slot is free. False when there is none at the moment, or others were
  // faster.
  HIPPO_ANYWHERE bool try_take(uint64_t& ticket) const {
    shared_ref<uint64_t> next(state->ticket);
    ticket = next.load(relaxed);
    return shared_ref<uint64_t>(slots[slot_of(ticket)].turn).load(acquire) == ticket &&
           next.compare_exchange_strong(ticket, ticket + 1, relaxed, relaxed);
  }

  // Writes the command into the ticket's slot. Who does not submit() it sees to it with urge().
  HIPPO_ANYWHERE void post(uint64_t ticket, const Command& command) const {
    const uint32_t slot = slot_of(ticket);
    commands[slot] = command;
    commands[slot].id = static_cast<uint16_t>(slot);
    static_cast<void>(
        shared_ref<uint64_t>(marks[slot / 64]).fetch_or(uint64_t{1} << (slot % 64), release));
  }

  // Tells the controller of the posted command if that needs no wait: true when it has been told.
  HIPPO_ANYWHERE bool urge(uint64_t ticket) const {
    const shared_ref<uint64_t> tail(state->tail);
    if (static_cast<int64_t>(tail.load(acquire) - ticket) > 0) {
      return true;
    }
    move_tail();
    return static_cast<int64_t>(tail.load(acquire) - ticket) > 0;
  }

  // Writes the command into the ticket's slot and returns when the controller has been told of it,
  // by this thread or another. False when the array has ended.
  HIPPO_ANYWHERE bool submit(uint64_t ticket,
                             const Command& command,
                             const Patience& patience) const {
    post(ticket, command);
    Wait wait(patience);
    while (!urge(ticket)) {
      drain(patience);
      if (!wait.again()) {
        return false;
      }
    }
    return true;
  }

  // Whether the ticket's completion has come; takes what has come when it has not.
  [[nodiscard]] HIPPO_ANYWHERE bool completed(uint64_t ticket, const Patience& patience) const {
    shared_ref<uint64_t> turn(slots[slot_of(ticket)].turn);
    if (turn.load(acquire) == ticket + 1) {
      return true;
    }
    drain(patience);
    return turn.load(acquire) == ticket + 1;
  }

  // Waits for the completion. `aborted` when the array has ended first: then the slot is lost.
  HIPPO_ANYWHERE Outcome finish(uint64_t ticket, const Patience& patience) const {
    Wait wait(patience);
    while (!completed(ticket, patience)) {
      if (!rest(ticket, wait)) {
        return {NvmeStatus::aborted, 0};
      }
    }
    return outcome(ticket);
  }

  // Lets others run until the completion may have come. False when the array has ended.
  HIPPO_ANYWHERE bool rest(uint64_t ticket, Wait& wait) const {
    if (wait.rounds() < rounds_awake || wake == nullptr) {
      return wait.again();
    }
    doze(ticket);
    return wait.goes_on();
  }

  // Of a completed ticket.
  [[nodiscard]] HIPPO_ANYWHERE Outcome outcome(uint64_t ticket) const {
    const QueueSlot& slot = slots[slot_of(ticket)];
    return {static_cast<NvmeStatus>(slot.status & 0x7FFU), slot.result};
  }

  // After this the slot, and what the result points to, is the next ticket's.
  HIPPO_ANYWHERE void let_go(uint64_t ticket) const {
    shared_ref<uint64_t>(slots[slot_of(ticket)].turn).store(ticket + depth, release);
  }

  // Moves the tail past the commands that are marked, if nobody else is doing so, and rings.
  HIPPO_ANYWHERE void move_tail() const {
    if (!try_lock(state->tail_lock)) {
      return;
    }
    shared_ref<uint64_t> tail(state->tail);
    const uint64_t begin = tail.load(relaxed);
    // One slot stays empty: a ring whose tail meets its head is empty, says NVMe.
    const uint64_t end = shared_ref<uint64_t>(state->submission_head).load(acquire) + depth - 1;
    uint64_t position = begin;
    while (position != end) {
      const uint32_t slot = slot_of(position);
      shared_ref<uint64_t> word(marks[slot / 64]);
      uint64_t count = trailing_ones(word.load(acquire) >> (slot % 64));
      count = least(count, least(64 - slot % 64, least(depth - slot, end - position)));
      if (count == 0) {
        break;
      }
      const uint64_t ones = count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
      static_cast<void>(word.fetch_and(~(ones << (slot % 64)), relaxed));
      position += count;
    }
    if (position != begin) {
      tail.store(position, release);  // first: a completion may come as soon as the bell has rung
      ring(static_cast<uint32_t>(position) & (depth - 1));
    }
    unlock(state->tail_lock);
  }

  // Hands the completions that have come to their slots, if nobody else is doing so.
  HIPPO_ANYWHERE void drain(const Patience& patience) const {
    if (!try_lock(state->head_lock)) {
      return;
    }
    shared_ref<uint64_t> stored_head(state->completion_head);
    const uint64_t begin = stored_head.load(relaxed);
    uint64_t head = begin;
    Arrived arrived;  // NOLINT(cppcoreguidelines-pro-type-member-init): come() fills what is used
    // Not for ever: who has the lock has something of its own to do.
    for (uint32_t round = 0; round < batches_max && come(head, arrived); ++round) {
      if (!hand_over(arrived)) {
        patience.end(Ending::broken);
        break;
      }
      head += arrived.count;
    }
    if (head != begin) {
      // No release: what was read of the entries has been used.
      system_ref<uint32_t>(doorbells->completion_head)
          .store(static_cast<uint32_t>(head) & (completion_depth() - 1), relaxed);
      stored_head.store(head, relaxed);
    }
    unlock(state->head_lock);
  }

  // The phase that a completion has which is the `position`th: it flips with each round.
  [[nodiscard]] HIPPO_ANYWHERE bool phase_of(uint64_t position) const {
    return (position & completion_depth()) == 0;
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t completion_depth() const { return 2 * depth; }

 private:
  HIPPO_ANYWHERE static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

  HIPPO_ANYWHERE static bool try_lock(uint32_t& lock) {
    shared_ref<uint32_t> word(lock);
    uint32_t open = 0;
    return word.load(relaxed) == 0 && word.compare_exchange_strong(open, 1, acquire, relaxed);
  }

  HIPPO_ANYWHERE static void unlock(uint32_t& lock) {
    shared_ref<uint32_t>(lock).store(0, release);
  }

  [[nodiscard]] HIPPO_ANYWHERE Completion& completion_at(uint64_t position) const {
    return completions[position & (completion_depth() - 1)];
  }

  // Completions that are taken together: across the link whatever is asked for one after the other
  // is one latency each, and together one for all.
  struct Arrived {
    static constexpr uint32_t most = 16;

    uint64_t last[most];
    uint64_t result[most];
    uint64_t ticket[most];
    uint32_t count;
  };

  // Reads the completions that have come from `head` on. False when there is none.
  HIPPO_ANYWHERE bool come(uint64_t head, Arrived& arrived) const {
    arrived.last[0] = system_ref<uint64_t>(completion_at(head).last).load(relaxed);
    if (unpack(arrived.last[0]).phase != phase_of(head)) {
      return false;
    }
    HIPPO_UNROLL
    for (uint32_t i = 1; i < Arrived::most; ++i) {
      arrived.last[i] = system_ref<uint64_t>(completion_at(head + i).last).load(relaxed);
    }
    arrived.count = 1;
    HIPPO_UNROLL
    for (uint32_t i = 1; i < Arrived::most; ++i) {
      const bool is_there = unpack(arrived.last[i]).phase == phase_of(head + i);
      arrived.count += is_there && arrived.count == i ? 1 : 0;
    }
    // The last one's release covers those before it.
    static_cast<void>(
        system_ref<uint64_t>(completion_at(head + arrived.count - 1).last).load(acquire));
    HIPPO_UNROLL
    for (uint32_t i = 0; i < Arrived::most; ++i) {
      if (i < arrived.count) {
        const uint32_t slot = unpack(arrived.last[i]).command & (depth - 1);
        arrived.result[i] = completion_at(head + i).result;
        arrived.ticket[i] = shared_ref<uint64_t>(slots[slot].turn).load(relaxed);
      }
    }
    return true;
  }

  // False for a completion of a command that is not under way: the controller's mistake.
  [[nodiscard]] HIPPO_ANYWHERE bool hand_over(const Arrived& arrived) const {
    const uint64_t tail = shared_ref<uint64_t>(state->tail).load(acquire);
    uint16_t head_told = 0;
    bool right = true;
    HIPPO_UNROLL
    for (uint32_t i = 0; i < Arrived::most; ++i) {
      if (i < arrived.count && right) {
        const CompletionWord word = unpack(arrived.last[i]);
        head_told = word.submission_head;
        right = hand_over_one(word, arrived.result[i], arrived.ticket[i], tail);
      }
    }
    if (right) {
      shared_ref<uint64_t> fetched(state->submission_head);
      const uint64_t before = fetched.load(relaxed);
      fetched.store(before + slot_of(head_told - before), release);
    }
    return right;
  }

  [[nodiscard]] HIPPO_ANYWHERE bool hand_over_one(const CompletionWord& word,
                                                  uint64_t result,
                                                  uint64_t ticket,
                                                  uint64_t tail) const {
    if (word.command >= depth || slot_of(ticket) != word.command ||
        static_cast<int64_t>(tail - ticket) <= 0) {
      return false;
    }
    QueueSlot& slot = slots[word.command];
    shared_ref<uint64_t> turn(slot.turn);
    if (turn.load(relaxed) != ticket) {  // a second one for the slot in one batch
      return false;
    }
    slot.result = result;
    slot.status = word.status;
    if (wake == nullptr) {
      turn.store(ticket + 1, release);
    } else {
      turn.store(ticket + 1, seq_cst);
      wake_sleeper(slot.sleeping);
    }
    return true;
  }

  HIPPO_ANYWHERE void ring(uint32_t tail) const {
    if (wake == nullptr) {
      system_ref<uint32_t>(doorbells->submission_tail).store(tail, release);
    } else {
      system_ref<uint32_t>(doorbells->submission_tail).store(tail, seq_cst);
      wake_sleeper(wake->sleeping);
    }
  }

  // Sleeps until the completion is handed over, by the controller's thread or a submitter; or for a
  // moment: who had the head's lock may have missed it.
  HIPPO_ANYWHERE void doze(uint64_t ticket) const {
    QueueSlot& slot = slots[slot_of(ticket)];
    system_ref<uint32_t> sleeping(slot.sleeping);
    sleeping.store(1, seq_cst);
    if (shared_ref<uint64_t>(slot.turn).load(seq_cst) != ticket + 1) {
      sleep_on(slot.sleeping, longest_doze_ns);
    }
    sleeping.store(0, seq_cst);
  }

  static constexpr uint32_t batches_max = 4;
  static constexpr uint32_t rounds_awake = 4;
  static constexpr uint64_t longest_doze_ns = 1'000'000;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_QUEUE_HPP_
