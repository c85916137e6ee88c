// An NVMe queue pair that any number of threads submit to, with short critical sections (BaM §3.3).
//
// A ticket names a slot and a turn. Turn words say whose turn a slot is: `t` when ticket t may
// write its command, t + 1 when t's completion has come, t + depth when t has let go. A mark says
// that the command is written; whoever has the tail's lock moves the tail past all marks there are
// and rings the doorbell once for them. Completions are taken in their order by whoever has the
// head's lock, as many at once as lanes do it, and handed to the slots, where their owners wait. A
// slot stays its owner's until it lets go, so the slot's number is the command's identifier, and
// what belongs to a slot (staging memory, the record of a failure) needs no lock of its own.
//
// The completion queue is twice as deep as the submission queue: it cannot be full, since each slot
// has at most one completion. All counters are 64 bits and wrap: they are compared by differences,
// and depth is a power of two. src/array/model/queue.pml is the protocol for spin.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_QUEUE_HPP_
#define HIPPOGRIFF_ARRAY_QUEUE_HPP_

#include <hippogriff/array/group.hpp>
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
  uint32_t sleeping = 0;  // a CPU thread that waits for the answer
  uint64_t pending = 0;   // a PendingWord; 0: an owner waits
};

// Says that a slot's command has no owner who waits: whoever comes by when it has been answered
// takes the word by compare-and-swap, and ends what it was for (pending.hpp).
struct PendingWord {
  static constexpr uint64_t waiting = uint64_t{1} << 63U;
  static constexpr uint64_t taken = uint64_t{1} << 62U;
  static constexpr uint64_t writes = uint64_t{1} << 61U;

  HIPPO_ANYWHERE static constexpr uint64_t of(uint32_t place, Opcode opcode) {
    return waiting | (opcode == Opcode::write ? writes : 0) | place;
  }

  HIPPO_ANYWHERE static constexpr uint32_t place(uint64_t word) {
    return static_cast<uint32_t>(word);
  }

  HIPPO_ANYWHERE static constexpr Opcode opcode(uint64_t word) {
    return (word & writes) != 0 ? Opcode::write : Opcode::read;
  }
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

// What a drive has as registers, and beside it whom to wake: null where nobody sleeps, as where the
// submitters are a GPU's.
struct Bells {
  Doorbells doorbells;
  alignas(64) WakeWord* wake = nullptr;
};

struct Outcome {
  NvmeStatus status = NvmeStatus::success;
  uint64_t result = 0;  // an address to copy from; 0: the data is at prp1
};

// Where the parts of a pair's memory begin, in bytes. `shared` is what host and submitters reach:
// commands, completions, bells, a record of a failure for each slot. `own` is the submitters':
// state, slots, a mark (one bit) for each slot.
struct QueueLayout {
  uint32_t depth = 0;

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t completions() const {
    return uint64_t{depth} * sizeof(Command);
  }

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t bells() const {
    return aligned(completions() + uint64_t{2} * depth * sizeof(Completion));
  }

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t failures() const {
    return bells() + sizeof(Bells);
  }

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t shared_bytes() const {
    return aligned(failures() + uint64_t{depth} * sizeof(FailureRecord));
  }

  [[nodiscard]] HIPPO_ANYWHERE static constexpr uint64_t slots() { return sizeof(QueueState); }

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t marks() const {
    return slots() + uint64_t{depth} * sizeof(QueueSlot);
  }

  [[nodiscard]] HIPPO_ANYWHERE constexpr uint64_t own_bytes() const {
    return aligned(marks() + (uint64_t{depth} + 63) / 64 * sizeof(uint64_t));
  }

 private:
  HIPPO_ANYWHERE static constexpr uint64_t aligned(uint64_t bytes) {
    return (bytes + 127) / 128 * 128;
  }
};

// Pointers alone: copied into kernels by value. Thread-safe. Both parts are 128-byte aligned.
struct QueuePair {
  unsigned char* shared = nullptr;
  unsigned char* own = nullptr;
  uint32_t depth = 0;

  [[nodiscard]] HIPPO_ANYWHERE Command* commands() const {
    return reinterpret_cast<Command*>(shared);
  }

  [[nodiscard]] HIPPO_ANYWHERE Completion* completions() const {
    return reinterpret_cast<Completion*>(shared + layout().completions());
  }

  [[nodiscard]] HIPPO_ANYWHERE Bells& bells() const {
    return *reinterpret_cast<Bells*>(shared + layout().bells());
  }

  [[nodiscard]] HIPPO_ANYWHERE FailureRecord* failures() const {
    return reinterpret_cast<FailureRecord*>(shared + layout().failures());
  }

  [[nodiscard]] HIPPO_ANYWHERE QueueState& state() const {
    return *reinterpret_cast<QueueState*>(own);
  }

  [[nodiscard]] HIPPO_ANYWHERE QueueSlot& slot(uint32_t number) const {
    return reinterpret_cast<QueueSlot*>(own + QueueLayout::slots())[number];
  }

  [[nodiscard]] HIPPO_ANYWHERE WakeWord* wake() const {
#ifdef __CUDA_ARCH__
    return nullptr;
#else
    return bells().wake;
#endif
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t slot_of(uint64_t ticket) const {
    return static_cast<uint32_t>(ticket) & (depth - 1);
  }

  // Takes `count` tickets, at most as many as the group has threads and half of the slots, and
  // waits until their slots are free: back-pressure when the queue is full. False when the array
  // has ended. What was taken must be submitted, or the array ended.
  template <typename Group>
  HIPPO_ANYWHERE bool take(const Group& group,
                           uint32_t count,
                           uint64_t& first,
                           const Patience& patience) const {
    first = 0;
    if (group.leads()) {
      first = shared_ref<uint64_t>(state().ticket).fetch_add(count, relaxed);
    }
    first = group.told(first);
    const uint64_t mine = first + (group.rank() < count ? group.rank() : 0);
    Wait wait(patience);
    while (!group.all(is_free(mine))) {
      drain(group, patience);
      if (!group.told(group.leads() && wait.again())) {
        return false;
      }
    }
    return true;
  }

  // Takes a ticket whose slot is free. False when there is none at the moment, or others were
  // faster.
  HIPPO_ANYWHERE bool try_take(uint64_t& ticket) const {
    shared_ref<uint64_t> next(state().ticket);
    ticket = next.load(relaxed);
    return shared_ref<uint64_t>(slot(slot_of(ticket)).turn).load(acquire) == ticket &&
           next.compare_exchange_strong(ticket, ticket + 1, relaxed, relaxed);
  }

  // Takes up to `count` tickets, as many as have free slots, and says how many: none when others
  // were faster. One slot more is free: then the ring has room for all, and nobody has to come by
  // for the controller to be told.
  template <typename Group>
  HIPPO_ANYWHERE uint32_t try_take(const Group& group, uint32_t count, uint64_t& first) const {
    shared_ref<uint64_t> next(state().ticket);
    first = group.told(group.leads() ? next.load(relaxed) : 0);
    const uint32_t taken = group.leading(group.rank() < count && has_room(first + group.rank()));
    uint64_t expected = first;
    const bool ours = group.leads() && taken != 0 &&
                      next.compare_exchange_strong(expected, first + taken, relaxed, relaxed);
    return group.told(ours ? taken : 0);
  }

  // The same by one thread.
  HIPPO_ANYWHERE uint32_t try_take_run(uint32_t count, uint64_t& first) const {
    shared_ref<uint64_t> next(state().ticket);
    first = next.load(relaxed);
    uint32_t taken = 0;
    while (taken < count && has_room(first + taken)) {
      ++taken;
    }
    uint64_t expected = first;
    const bool ours =
        taken != 0 && next.compare_exchange_strong(expected, first + taken, relaxed, relaxed);
    return ours ? taken : 0;
  }

  [[nodiscard]] HIPPO_ANYWHERE bool has_room(uint64_t ticket) const {
    return is_free(ticket) && is_free(ticket + 1);
  }

  // Whether it is the ticket's turn.
  [[nodiscard]] HIPPO_ANYWHERE bool is_free(uint64_t ticket) const {
    return polled(slot(slot_of(ticket)).turn, ticket);
  }

  // Writes the command into the ticket's slot, by 16 bytes: across the link each store counts.
  HIPPO_ANYWHERE void write(uint64_t ticket, const Command& command) const {
    struct alignas(16) Half {
      uint64_t low;
      uint64_t high;
    };

    const uint32_t number = slot_of(ticket);
    auto* halves = reinterpret_cast<Half*>(commands() + number);
    halves[0] = {uint64_t{command.opcode} | (uint64_t{command.flags} << 8U) |
                     (uint64_t{number} << 16U) | (uint64_t{command.namespace_id} << 32U),
                 command.reserved};
    halves[1] = {command.metadata, command.prp1};
    halves[2] = {command.prp2, command.first_block()};
    halves[3] = {uint64_t{command.blocks_less_one} | (uint64_t{command.dword13} << 32U),
                 uint64_t{command.dword14} | (uint64_t{command.dword15} << 32U)};
  }

  // Says that the group has written the commands of `count` tickets.
  template <typename Group>
  HIPPO_ANYWHERE void mark(const Group& group, uint64_t first, uint32_t count) const {
    group.meet();
    if (!group.leads()) {
      return;
    }
    while (count != 0) {
      const uint32_t number = slot_of(first);
      const auto run = static_cast<uint32_t>(least(count, run_from(number)));
      static_cast<void>(shared_ref<uint64_t>(marks(number)).fetch_or(ones(number, run), release));
      first += run;
      count -= run;
    }
  }

  // One thread's command. Who does not wait with finish() sees to it with urge().
  HIPPO_ANYWHERE void post(uint64_t ticket, const Command& command) const {
    write(ticket, command);
    mark(Alone{}, ticket, 1);
  }

  // Tells the controller of the marked command if that needs no wait: true when it has been told.
  HIPPO_ANYWHERE bool urge(uint64_t ticket) const {
    if (!told_of(ticket)) {
      move_tail();
    }
    return told_of(ticket);
  }

  // Whether the ticket's completion has come to its slot; then its outcome is seen.
  [[nodiscard]] HIPPO_ANYWHERE bool completed(uint64_t ticket) const {
    return polled(slot(slot_of(ticket)).turn, ticket + 1);
  }

  // Waits until the completions of `count` marked commands have come, as many as the group has
  // threads at most. False when the array has ended: then the slots are lost.
  template <typename Group>
  HIPPO_ANYWHERE bool finish(const Group& group,
                             uint64_t first,
                             uint32_t count,
                             const Patience& patience) const {
    const uint64_t mine = first + (group.rank() < count ? group.rank() : 0);
    bool have_all = false;
    Wait wait(patience);
    while (!have_all) {
      const bool had = completed(mine);
      have_all = group.all(had);
      if (!have_all) {
        if (group.leads()) {
          static_cast<void>(urge(first + count - 1));
        }
        drain(group, patience);
        const bool has = had || completed(mine);
        have_all = group.all(has);
        if (!group.all(has == had)) {
          wait.restart();
        }
        if (!have_all && !group.told(group.leads() && rest(mine, wait))) {
          return false;
        }
      }
    }
    return true;
  }

  // Lets others run until the completion may have come. False when the array has ended. A thread.
  HIPPO_ANYWHERE bool rest(uint64_t ticket, Wait& wait) const {
    if (wait.rounds() < rounds_awake || wake() == nullptr) {
      return wait.again();
    }
    doze(ticket);
    return wait.goes_on();
  }

  // Of a completed ticket.
  [[nodiscard]] HIPPO_ANYWHERE Outcome outcome(uint64_t ticket) const {
    const QueueSlot& its = slot(slot_of(ticket));
    return {static_cast<NvmeStatus>(its.status & 0x7FFU), its.result};
  }

  // After this the slot, and what the result points to, is the next ticket's.
  HIPPO_ANYWHERE void let_go(uint64_t ticket) const {
    shared_ref<uint64_t>(slot(slot_of(ticket)).turn).store(ticket + depth, release);
  }

  // Hands the completions that have come to their slots, if nobody else is doing so.
  template <typename Group>
  HIPPO_ANYWHERE void drain(const Group& group, const Patience& patience) const {
    QueueState& own_words = state();
    if (!group.told(group.leads() && try_lock(own_words.head_lock))) {
      return;
    }
    shared_ref<uint64_t> stored_head(own_words.completion_head);
    const uint64_t begin = stored_head.load(relaxed);
    uint64_t head = begin;
    bool right = true;
    // Not for ever: who has the lock has something of its own to do.
    for (uint32_t seen = 0; seen < completions_max && right; seen += group.size()) {
      const uint32_t count = hand_over(group, head, right, patience);
      if (count == 0) {
        break;
      }
      head += count;
    }
    group.meet();  // what all have written comes before the lock is open
    if (group.leads()) {
      if (!right) {
        patience.end(Ending::broken);
      }
      // Seldom, since half a round of entries may wait for it: across the link each store counts.
      // No release: what was read of the entries has been used.
      if (((begin ^ head) & ~uint64_t{depth / 2 - 1}) != 0) {
        system_ref<uint32_t>(bells().doorbells.completion_head)
            .store(static_cast<uint32_t>(head) & (completion_depth() - 1), relaxed);
      }
      stored_head.store(head, relaxed);
      unlock(own_words.head_lock);
    }
  }

  // The phase that a completion has which is the `position`th: it flips with each round.
  [[nodiscard]] HIPPO_ANYWHERE bool phase_of(uint64_t position) const {
    return (position & completion_depth()) == 0;
  }

  [[nodiscard]] HIPPO_ANYWHERE uint32_t completion_depth() const { return 2 * depth; }

 private:
  [[nodiscard]] HIPPO_ANYWHERE QueueLayout layout() const { return {depth}; }

  HIPPO_ANYWHERE static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

  // The word with a slot's mark.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t& marks(uint32_t number) const {
    return reinterpret_cast<uint64_t*>(own + layout().marks())[number / 64];
  }

  // How many slots from this one on have marks beside each other.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t run_from(uint32_t number) const {
    return static_cast<uint32_t>(least(64 - number % 64, depth - number));
  }

  HIPPO_ANYWHERE static uint64_t ones(uint32_t number, uint32_t count) {
    return (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << (number % 64);
  }

  [[nodiscard]] HIPPO_ANYWHERE bool told_of(uint64_t ticket) const {
    return static_cast<int64_t>(shared_ref<uint64_t>(state().tail).load(relaxed) - ticket) > 0;
  }

  HIPPO_ANYWHERE static bool try_lock(uint32_t& lock) {
    shared_ref<uint32_t> word(lock);
    uint32_t open = 0;
    return word.load(relaxed) == 0 && word.compare_exchange_strong(open, 1, acquire, relaxed);
  }

  HIPPO_ANYWHERE static void unlock(uint32_t& lock) {
    shared_ref<uint32_t>(lock).store(0, release);
  }

  // Moves the tail past the commands that are marked, if nobody else is doing so, and rings.
  HIPPO_ANYWHERE void move_tail() const {
    QueueState& own_words = state();
    if (!try_lock(own_words.tail_lock)) {
      return;
    }
    shared_ref<uint64_t> tail(own_words.tail);
    const uint64_t begin = tail.load(relaxed);
    // One slot stays empty: a ring whose tail meets its head is empty, says NVMe.
    const uint64_t end = shared_ref<uint64_t>(own_words.submission_head).load(relaxed) + depth - 1;
    uint64_t position = begin;
    while (position != end) {
      const uint32_t number = slot_of(position);
      shared_ref<uint64_t> word(marks(number));
      const uint32_t marked = trailing_ones(word.load(acquire) >> (number % 64));
      const auto count =
          static_cast<uint32_t>(least(marked, least(run_from(number), end - position)));
      if (count == 0) {
        break;
      }
      static_cast<void>(word.fetch_and(~ones(number, count), relaxed));
      position += count;
    }
    if (position != begin) {
      tail.store(position, relaxed);  // first: a completion may come as soon as the bell has rung
      ring(static_cast<uint32_t>(position) & (depth - 1));
    }
    unlock(own_words.tail_lock);
  }

  HIPPO_ANYWHERE void ring(uint32_t tail) const {
    system_ref<uint32_t> bell(bells().doorbells.submission_tail);
    WakeWord* const asleep = wake();
    if (asleep == nullptr) {
      bell.store(tail, release);
    } else {
      bell.store(tail, seq_cst);
      wake_sleeper(asleep->sleeping);
    }
  }

  // Hands over the completions that have come from `head` on, one by each of the group, and says
  // how many. `right` is false after one of a command that is not under way: the controller's
  // mistake.
  template <typename Group>
  HIPPO_ANYWHERE uint32_t
  hand_over(const Group& group, uint64_t head, bool& right, const Patience& patience) const {
    const uint64_t position = head + group.rank();
    Completion& entry = completions()[position & (completion_depth() - 1)];
    uint64_t last = 0;
    const bool has_come = polled_if(
        system_ref<uint64_t>(entry.last),
        [&](uint64_t now) { return unpack(now).phase == phase_of(position); },
        last);
    const uint32_t count = group.leading(has_come);
    bool good = true;
    if (group.rank() < count) {
      const CompletionWord word = unpack(last);
      const uint64_t result = system_ref<uint64_t>(entry.result).load(relaxed);
      good = give(word, result);
      if (!good) {
        patience.remember(wrong_answer(position, last));
      }
      if (group.rank() + 1 == count) {
        shared_ref<uint64_t> fetched(state().submission_head);
        const uint64_t before = fetched.load(relaxed);
        fetched.store(before + slot_of(word.submission_head - before), relaxed);
      }
    }
    right = group.all(good);
    return count;
  }

  HIPPO_ANYWHERE WrongAnswer wrong_answer(uint64_t position, uint64_t last) const {
    const uint32_t command = unpack(last).command;
    return {position,
            last,
            command < depth ? shared_ref<uint64_t>(slot(command).turn).load(relaxed) : 0,
            shared_ref<uint64_t>(state().tail).load(relaxed)};
  }

  // False for a completion of a command that is not under way. Of two for one command in the same
  // batch either may reach its owner.
  [[nodiscard]] HIPPO_ANYWHERE bool give(const CompletionWord& word, uint64_t result) const {
    if (word.command >= depth) {
      return false;
    }
    QueueSlot& its = slot(word.command);
    shared_ref<uint64_t> turn(its.turn);
    uint64_t ticket = turn.load(relaxed);
    if (slot_of(ticket) != word.command || !told_of(ticket)) {
      return false;
    }
    shared_ref<uint64_t>(its.result).store(result, relaxed);
    shared_ref<uint32_t>(its.status).store(word.status, relaxed);
    if (wake() == nullptr) {
      return turn.compare_exchange_strong(ticket, ticket + 1, release, relaxed);
    }
    const bool first = turn.compare_exchange_strong(ticket, ticket + 1, seq_cst, relaxed);
    wake_sleeper(its.sleeping);
    return first;
  }

  // Sleeps until the completion is handed over, by the controller's thread or a submitter; or for a
  // moment: who had the head's lock may have missed it.
  HIPPO_ANYWHERE void doze(uint64_t ticket) const {
    QueueSlot& its = slot(slot_of(ticket));
    system_ref<uint32_t> sleeping(its.sleeping);
    sleeping.store(1, seq_cst);
    if (shared_ref<uint64_t>(its.turn).load(seq_cst) == ticket) {
      sleep_on(its.sleeping, longest_doze_ns);
    }
    sleeping.store(0, seq_cst);
  }

  static constexpr uint32_t completions_max = 64;
  static constexpr uint32_t rounds_awake = 4;
  static constexpr uint64_t longest_doze_ns = 1'000'000;
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_QUEUE_HPP_
