// The cache of an array: lines in the device's memory, read from and written to the storage by
// commands.
//
// Whoever waits for a place whose command is pending settles that (pending.hpp), and who waits
// where all places are held for long has the line in the spare one: src/array/README.md argues from
// this that somebody always gets on, however small the cache, and whatever threads hold.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_CACHE_HPP_
#define HIPPOGRIFF_ARRAY_CACHE_HPP_

#include <hippogriff/array/places.hpp>
#include <hippogriff/array/queue.hpp>

namespace hippogriff::ondemand {

inline constexpr uint32_t line_shift_min = 9;   // 512 B
inline constexpr uint32_t line_shift_max = 20;  // 1 MiB
inline constexpr uint32_t view_layout = 7;      // of Cache and what it points to, in memory

// A place with a reference of ours, or, for who wants to keep a line and cannot, `no_place`. The
// spare place is ours alone, and others wait for it: it is dropped after one access.
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

// A line on its way into or from a place that is busy, the thread's own.
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
  AccessCount* accesses = nullptr;
  uint32_t* sticky = nullptr;  // the first NvmeStatus that was not success, in host's reach
  Patience patience;
  uint64_t size_bytes = 0;  // of the array
  uint32_t line_shift = 0;
  uint32_t queue_count = 0;
  uint32_t pending_queue_count = 0;  // behind the others: of commands that nobody waits for
  bool writable = false;
  bool keeps_writes = true;  // false: in mode c a flush has nothing to do
  uint16_t zero = 0;         // what the compiler does not know (peek.hpp)

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

  // The line with a reference, loaded unless it is to be overwritten. All of the group call; lanes
  // hold nothing that others of their warp may wait for. After a failure nothing is held. On a GPU
  // what calls another function needs the registers of both: so those that are called here call
  // nothing further.
  template <typename Group>
  HIPPO_ANYWHERE Held hold(const Group& group, uint64_t line, Intent intent) const {
    count_access(group.leads() ? accesses : nullptr);
    uint32_t begun = 0;  // writes that nobody waited for
    uint32_t lost = 0;   // victims that could not be written
    for (;;) {
      const Found found = look(group, line, intent);
      if (found.step == Step::settle) {
        const Settled settled = settle_any(group, found, line);
        if (settled.kept != no_place) {
          return {settled.kept, false, NvmeStatus::success};
        }
        if (!settled.goes_on) {
          return {0, false, noted(NvmeStatus::aborted)};
        }
      } else if (found.step == Step::write_back) {
        // Waits in the end: where writing fails somebody must be told.
        const bool waits = begun++ >= places.ways;
        const NvmeStatus status = make_clean(group, found.other, found.place, waits);
        lost += status == NvmeStatus::success ? 0 : 1;
        if (status == NvmeStatus::aborted || lost == places.ways) {
          return {0, false, status};
        }
      } else if (found.step == Step::failed) {
        return {0, false, noted(static_cast<NvmeStatus>(found.other))};
      } else {
        if (found.step != Step::ready && found.other != 0) {
          write_cold(group, found.place, static_cast<uint32_t>(found.other));
        }
        const bool fresh = found.step == Step::overwrite ||
                           (found.step == Step::spare && intent == Intent::overwrite);
        return {found.place, fresh, NvmeStatus::success};
      }
    }
  }

  // Takes references if the line is there and needs no wait. One thread, for as many.
  [[nodiscard]] HIPPO_ANYWHERE bool try_hold(uint64_t line,
                                             uint32_t& place,
                                             uint32_t references = 1,
                                             Intent intent = Intent::use) const {
    const bool there = places.try_hold(line, place, references, intent);
    count_access(there ? accesses : nullptr);
    return there;
  }

  // Gives the reference back, when all of the group, who call, are done with the bytes. `wrote`:
  // bytes were written. A failure: they are not in the storage, and not in the cache either.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus drop(const Group& group, const Held& held, bool wrote) const {
    group.meet();
    if (held.place == places.spare()) {
      return leave_spare(group, held.fresh, wrote);
    }
    if (group.leads()) {
      if (held.fresh) {
        places.open_and_drop(held.place, true);
      } else {
        places.drop(held.place, wrote);
      }
    }
    return NvmeStatus::success;
  }

  // Steps of UnderWay, by one thread, for a place that is busy and its own. Posts the command.
  // False when the array has ended, and when no slot is free: who waits for one must have finished
  // all else that it has begun.
  template <Opcode What>
  HIPPO_ANYWHERE bool begin(Loading& loading, bool may_wait) const {
    loading.transit.queue = queue_of(loading.line);
    const QueuePair pair = queue(loading.transit.queue);
    uint64_t& ticket = loading.transit.ticket;
    if (!(may_wait ? pair.take(Alone{}, 1, ticket, patience) : pair.try_take(ticket))) {
      return false;
    }
    if (What == Opcode::write && staging != nullptr) {
      move(Alone{}, 1, loading, What);
    }
    pair.post(ticket, command(loading, What));
    return true;
  }

  // Gives the line to all when the answer has come: true. A failure is also for those who want the
  // line.
  template <Opcode What>
  HIPPO_ANYWHERE bool try_finish(const Loading& loading, NvmeStatus& status) const {
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
    if (What == Opcode::read) {
      move(Alone{}, 1, loading, What);
    }
    status = settle<What>(loading);
    if (What == Opcode::read && status == NvmeStatus::success) {
      places.drop(loading.place, false);
    }
    return true;
  }

  // Carries out a command for each of the group that `has` a place that is busy and its own, as
  // many together as the queue takes, and opens the places: a place that was read keeps its
  // reference, one that was written, or could not be read, has none. `status` is each thread's own.
  // False when the array has ended: then the places stay busy, since a command that nobody answered
  // may still move bytes. Nobody is waited for but the controller, and older commands for their
  // slots.
  template <Opcode What, typename Group>
  HIPPO_ANYWHERE bool carry_out(const Group& group,
                                bool has,
                                Loading& mine,
                                NvmeStatus& status) const {
    uint32_t to_do = group.vote(has);
    if (to_do == 0) {
      return true;
    }
    // One queue for all: commands that stand beside each other are answered beside each other.
    mine.transit.queue = group.told_by(lowest(to_do), queue_of(mine.line));
    const QueuePair pair = queue(mine.transit.queue);
    while (to_do != 0) {
      const uint32_t waiting = count_ones(to_do);
      const uint32_t count = waiting < pair.depth / 2 ? waiting : pair.depth / 2;
      const uint32_t number = group.before_me(to_do);
      const bool now = has && number < count;
      const uint32_t batch = group.vote(now);
      uint64_t first = 0;
      if (!pair.take(group, count, first, patience)) {
        return false;
      }
      mine.transit.ticket = first + number;
      if (What == Opcode::write && staging != nullptr) {
        move(group, batch, mine, What);
      }
      if (now) {
        pair.write(mine.transit.ticket, command(mine, What));
      }
      pair.mark(group, first, count);
      if (!pair.finish(group, first, count, patience)) {
        return false;
      }
      if (What == Opcode::read) {
        move(group, batch, mine, What);
      }
      if (now) {
        status = settle<What>(mine);
        has = false;
      }
      to_do &= ~batch;
    }
    return true;
  }

  // Writes the lines of as many places as the group has threads, from `first` on, to the storage
  // where they are dirty: those that nobody holds together with the lines around them, then each of
  // the others when nobody holds it. All of the group call, holding nothing; the statuses of all
  // threads are those of all places.
  // `interrupted`, where somebody keeps a line too long, is not noted: the array goes on.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART NvmeStatus flush_places(const Group& group, uint32_t first) const;

  // Has the storage keep what was written. One thread. A drive may take long for that: the limit is
  // that of 60 accesses.
  HIPPO_ANYWHERE NvmeStatus sync() const;

  // Remembers a failure for the whole array; returns it.
  HIPPO_ANYWHERE NvmeStatus noted(NvmeStatus status) const {
    if (status != NvmeStatus::success) {
      set_once(*sticky, static_cast<uint32_t>(status));
    }
    return status;
  }

  // Whose queue a line's command goes to when nobody waits for it.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t pending_queue_of(uint64_t line) const {
    return queue_count +
           below(pending_queue_count, static_cast<uint32_t>(spread(group_of(line) ^ queue_salt)));
  }

  // Whose queue a line's commands go to, when they go alone.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t queue_of(uint64_t line) const {
    return below(queue_count, static_cast<uint32_t>(spread(group_of(line) ^ queue_salt)));
  }

  // Has a line on its way where that needs no wait, each of the group its own where it `wants` one;
  // nobody needs to come back for it. False when there was no slot for all. All of the group call;
  // they may hold lines meanwhile.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART bool ask_ahead(const Group& group, uint64_t line, bool wants) const;

  // Has cold dirty places written, those of the set of `place` that are given, and around them;
  // waits for nothing. All of the group call; they may hold lines meanwhile.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART void write_cold(const Group& group,
                                             uint32_t place,
                                             uint32_t ways) const;

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

  // Looks for the line once, and loads it if that is to be done.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART Found look(const Group& group, uint64_t line, Intent intent) const {
    Wait wait(patience);
    Found found = find(group, line, intent, wait);
    const bool in_spare = found.step == Step::spare && found.place != no_place;
    if (found.step == Step::load || (in_spare && intent != Intent::overwrite)) {
      const NvmeStatus status = load(group, line, found.place);
      if (status != NvmeStatus::success) {
        if (in_spare && group.leads() && status != NvmeStatus::aborted) {
          places.unlock_set(line);
        }
        found = {Step::failed, 0, static_cast<uint64_t>(status)};
      }
    }
    return found;
  }

  // Writes what the spare place has, if `wrote`, and gives it back.
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART NvmeStatus leave_spare(const Group& group,
                                                    bool fresh,
                                                    bool wrote) const {
    Loading mine{{}, 0, places.spare()};
    if (group.leads()) {
      mine.line = places.line_at(mine.place);
      if (wrote && !fresh) {
        places.close_spare();
      }
    }
    NvmeStatus status = NvmeStatus::success;
    if (wrote) {
      status = NvmeStatus::aborted;
      static_cast<void>(carry_out<Opcode::write>(group, group.leads(), mine, status));
      status = noted(group.told(status));
    }
    if (group.leads() && status != NvmeStatus::aborted) {
      places.leave_spare(mine.line);
    }
    return status;
  }

  // What concerns lines that are written, see write_back.hpp.

  [[nodiscard]] HIPPO_ANYWHERE uint32_t lines_together(uint32_t most) const;
  template <typename Group>
  HIPPO_ANYWHERE bool take_around(
      const Group& group, bool claimed, bool beside, uint64_t marks, Loading& mine) const;
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus write_back(const Group& group, uint64_t line, uint32_t place) const;
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus flush_in_turn(const Group& group, uint32_t place) const;

  // What concerns pending commands, see pending.hpp.

  static constexpr uint32_t begun_most = 32;  // lines that one thread begins to write at once

  struct Settled {
    bool goes_on = false;  // something was settled; else the array has ended, or nothing was there
    uint32_t kept = no_place;
  };

  HIPPO_ANYWHERE bool claim_answered(uint32_t slot, Loading& its, Opcode& what) const;
  template <typename Group>
  HIPPO_ANYWHERE Settled settle(const Group& group, uint32_t slot, uint64_t wanted) const;
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART Settled settle_any(const Group& group,
                                                const Found& found,
                                                uint64_t wanted) const;
  HIPPO_ANYWHERE bool rest_beside(uint32_t place, Wait& wait) const;
  template <typename Group>
  HIPPO_ANYWHERE bool has_room(const Group& group, uint32_t number, uint32_t count) const;
  template <Opcode What>
  HIPPO_ANYWHERE void write_pending(const QueuePair& pair, const Loading& mine) const;
  HIPPO_ANYWHERE uint32_t begin_around(const Loading& first, uint32_t most) const;
  template <Opcode What, typename Group>
  HIPPO_ANYWHERE bool leave(const Group& group, bool has, Loading& mine) const;
  template <typename Group>
  HIPPO_ANYWHERE bool begin_writes(const Group& group,
                                   uint64_t line,
                                   uint32_t place,
                                   bool claimed) const;
  HIPPO_ANYWHERE bool begin_writes(const Alone& group,
                                   uint64_t line,
                                   uint32_t place,
                                   bool claimed) const;
  template <typename Group>
  HIPPO_ANYWHERE HIPPO_APART NvmeStatus
  make_clean(const Group& group, uint64_t line, uint32_t place, bool waits) const;

  // Reads the line into the place that the leader has claimed for all.
  template <typename Group>
  HIPPO_ANYWHERE NvmeStatus load(const Group& group, uint64_t line, uint32_t place) const {
    Loading mine{{}, line, place};
    NvmeStatus status = NvmeStatus::aborted;
    static_cast<void>(carry_out<Opcode::read>(group, group.leads(), mine, status));
    return noted(group.told(status));
  }

  // Lets go of the slot and opens the place.
  template <Opcode What>
  HIPPO_ANYWHERE NvmeStatus settle(const Loading& loading) const {
    const QueuePair pair = queue(loading.transit.queue);
    const NvmeStatus status = pair.outcome(loading.transit.ticket).status;
    pair.let_go(loading.transit.ticket);
    if (What == Opcode::write) {
      places.open_and_drop(loading.place, status != NvmeStatus::success);
      if (status == NvmeStatus::success) {
        PlaceTable::count(places.counters->written_back);
      }
    } else if (status == NvmeStatus::success) {
      places.open(loading.place);
    } else {
      places.give_up(loading.place, status);
    }
    return status;
  }

  // Moves the bytes of those in `batch` between their places and what their commands name, or their
  // answers, one after the other by all.
  template <typename Group>
  HIPPO_ANYWHERE void move(const Group& group,
                           uint32_t batch,
                           const Loading& mine,
                           Opcode what) const {
    const QueuePair pair = queue(mine.transit.queue);
    for (; batch != 0; batch &= batch - 1) {
      const uint32_t one = lowest(batch);
      Loading its = mine;
      its.line = group.told_by(one, mine.line);
      its.place = group.told_by(one, mine.place);
      its.transit.ticket = group.told_by(one, mine.transit.ticket);
      const uint32_t bytes = blocks_of(its.line) * block_bytes;
      if (what == Opcode::write) {
        copy(group, memory_of(its), bytes_of(its.place), bytes);
        continue;
      }
      const Outcome outcome = pair.outcome(its.transit.ticket);
      const auto* from = outcome.result != 0
                             ? reinterpret_cast<const unsigned char*>(outcome.result)
                             : memory_of(its);
      if (outcome.status == NvmeStatus::success && from != bytes_of(its.place)) {
        copy(group, bytes_of(its.place), from, bytes);
      }
    }
    group.meet();
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
    if ((reinterpret_cast<uint64_t>(from) | reinterpret_cast<uint64_t>(to)) % 16 == 0) {
      auto* wide_to = reinterpret_cast<Sixteen*>(to);
      const auto* wide_from = reinterpret_cast<const Sixteen*>(from);
      const uint32_t step = group.size();
      uint32_t i = group.rank();
      for (; i + 3 * step < bytes / 16; i += 4 * step) {  // four latencies at once
        Sixteen four[4];
        HIPPO_UNROLL
        for (uint32_t k = 0; k < 4; ++k) {
          four[k] = load_passing(&wide_from[i + k * step]);
        }
        HIPPO_UNROLL
        for (uint32_t k = 0; k < 4; ++k) {
          store_passing(&wide_to[i + k * step], four[k]);
        }
      }
      for (; i < bytes / 16; i += step) {
        store_passing(&wide_to[i], load_passing(&wide_from[i]));
      }
    } else {
      for (uint32_t i = group.rank(); i < bytes; i += group.size()) {
        to[i] = from[i];
      }
    }
  }

  // Lines behind each other have one queue, whose controller can move them together.
  [[nodiscard]] HIPPO_ANYWHERE uint64_t group_of(uint64_t line) const {
    constexpr uint32_t bytes_shift = 17;
    constexpr uint32_t lines_shift = 5;
    const uint32_t shift = line_shift < bytes_shift ? bytes_shift - line_shift : 0;
    return line >> (shift < lines_shift ? shift : lines_shift);
  }

  static constexpr uint64_t queue_salt = 0x9E3779B97F4A7C15U;
};

// Commands of one thread. Between the first and finish() it must not touch the array otherwise: it
// may wait for nothing but its own answers.
template <Opcode What>
class UnderWay {
 public:
  static constexpr uint32_t most = 64;

  HIPPO_ANYWHERE explicit UnderWay(const Cache& cache) : cache_(cache) {}

  HIPPO_ANYWHERE ~UnderWay() { finish(); }

  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  UnderWay(UnderWay&&) = delete;
  UnderWay& operator=(UnderWay&&) = delete;

  // For a place that is busy and ours.
  HIPPO_ANYWHERE void begin(const Loading& claimed) {
    first_ = first_ == no_line ? claimed.line : first_;
    if (count_ == most) {
      finish();
    }
    under_way_[count_] = claimed;
    if (!cache_.begin<What>(under_way_[count_], false)) {
      finish();  // its slots may be the ones that are wanted
      under_way_[0] = claimed;
      if (!cache_.begin<What>(under_way_[0], true)) {
        status_ = NvmeStatus::aborted;  // the array has ended
        return;
      }
    }
    ++count_;
  }

  // Waits until all have been answered, in any order: a slot that an answer has come to may be what
  // the others' commands wait for.
  HIPPO_ANYWHERE void finish() {
    while (count_ != 0) {
      Wait wait(cache_.patience);  // for the next answer
      while (!finish_some()) {
        const Transit& next = under_way_[0].transit;
        if (!cache_.queue(next.queue).rest(next.ticket, wait)) {
          count_ = 0;  // the array has ended: the places stay busy
          status_ = NvmeStatus::aborted;
          return;
        }
      }
    }
  }

  // The first failure of all that was answered.
  [[nodiscard]] HIPPO_ANYWHERE NvmeStatus status() const { return status_; }

  // How the first of all ended, once it has.
  [[nodiscard]] HIPPO_ANYWHERE NvmeStatus status_of_first() const { return status_of_first_; }

 private:
  // Whether an answer had come.
  HIPPO_ANYWHERE bool finish_some() {
    uint32_t left = 0;
    for (uint32_t i = 0; i < count_; ++i) {
      NvmeStatus its = NvmeStatus::success;
      if (!cache_.try_finish<What>(under_way_[i], its)) {
        under_way_[left++] = under_way_[i];
        continue;
      }
      status_of_first_ = under_way_[i].line == first_ ? its : status_of_first_;
      status_ = status_ == NvmeStatus::success ? its : status_;
    }
    const bool some = left != count_;
    count_ = left;
    return some;
  }

  const Cache& cache_;
  Loading under_way_[most];
  uint32_t count_ = 0;
  uint64_t first_ = no_line;
  NvmeStatus status_of_first_ = NvmeStatus::aborted;
  NvmeStatus status_ = NvmeStatus::success;
};

}  // namespace hippogriff::ondemand

#include <hippogriff/array/pending.hpp>
#include <hippogriff/array/write_back.hpp>

#endif  // HIPPOGRIFF_ARRAY_CACHE_HPP_
