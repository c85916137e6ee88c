// How every wait of an array ends: by what it waits for, by an abort, or by its time.
//
// SPDX-License-Identifier: Apache-2.0
#ifndef HIPPOGRIFF_ARRAY_WAITING_HPP_
#define HIPPOGRIFF_ARRAY_WAITING_HPP_

#include <hippogriff/array/portable.hpp>

namespace hippogriff::ondemand {

// Why nobody waits any more. The first reason stays, of several at the same moment any.
enum class Ending : uint32_t {
  none = 0,
  stopped = 1,          // the array was closed, or its controller
  controller_died = 2,  // a thread of the controller ended with a failure
  timed_out = 3,        // somebody waited as long as the array allows
  broken = 4,           // the controller answered what nobody had asked
};

// What threads of a GPU know of the ending, in its own memory. Thousands that wait must not ask the
// host's word: reads of one word across the link are served one after the other.
struct EndingNearby {
  alignas(128) uint32_t ending = 0;  // an Ending
  uint64_t next_look_ns = 0;         // when somebody asks the host's word again
};

// A completion of a command that was not under way, as it was met: for who looks for the reason.
struct WrongAnswer {
  uint64_t position = 0;  // among all completions of its queue
  uint64_t word = 0;      // Completion::last
  uint64_t turn = 0;      // QueueSlot::turn of the slot that it names, if there is one
  uint64_t tail = 0;      // QueueState::tail
};

// What host and device reach of an array, beside its queues.
struct ReachedWords {
  uint32_t ending = 0;  // an Ending
  uint32_t sticky = 0;  // the first NvmeStatus that was not success, or one as early
  WrongAnswer wrong;    // where the ending is `broken`
};

// What all who wait for an array share. The words are in memory that host and device reach.
struct Patience {
  ReachedWords* words = nullptr;
  uint64_t limit_ns = 0;           // of one wait
  EndingNearby* nearby = nullptr;  // null: the word is near

  [[nodiscard]] HIPPO_ANYWHERE Ending ended() const {
    if (nearby == nullptr) {
      return asked();
    }
    shared_ref<uint32_t> known(nearby->ending);
    const auto before = static_cast<Ending>(known.load(relaxed));
    if (before != Ending::none || !my_turn_to_look()) {
      return before;
    }
    const Ending now = asked();
    if (now != Ending::none) {
      known.store(static_cast<uint32_t>(now), relaxed);
    }
    return now;
  }

  // Of several one after the other, some of each may stay.
  HIPPO_ANYWHERE void remember(const WrongAnswer& wrong) const { words->wrong = wrong; }

  HIPPO_ANYWHERE void end(Ending why) const { set_once(words->ending, static_cast<uint32_t>(why)); }

 private:
  static constexpr uint64_t look_every_ns = 100'000;

  [[nodiscard]] HIPPO_ANYWHERE Ending asked() const {
    return static_cast<Ending>(system_ref<uint32_t>(words->ending).load(relaxed));
  }

  [[nodiscard]] HIPPO_ANYWHERE bool my_turn_to_look() const {
    shared_ref<uint64_t> next(nearby->next_look_ns);
    const uint64_t now = now_ns();
    uint64_t due = next.load(relaxed);
    return now >= due && next.compare_exchange_strong(due, now + look_every_ns, relaxed, relaxed);
  }
};

// What a wait does that takes too long. What most wait for cannot be taken back, so nobody could go
// on behind it; who gives up alone has left everything as it was.
enum class WhenLate : uint32_t { ends_array, gives_up };

// One wait.
class Wait {
 public:
  HIPPO_ANYWHERE explicit Wait(const Patience& patience, WhenLate late = WhenLate::ends_array)
      : patience_(patience), late_(late) {}

  // Pauses. False when the array has ended, or this wait is late: give up.
  HIPPO_ANYWHERE bool again() {
    pause(round_, nap_ns_);
#ifdef __CUDA_ARCH__
    constexpr uint32_t rounds_between = 32;
#else
    constexpr uint32_t rounds_between = 4;
#endif
    return ++round_ % rounds_between != 0 || goes_on();
  }

  // From now on a new wait: something has come.
  HIPPO_ANYWHERE void restart() {
    begin_ns_ = 0;
    round_ = 0;
    nap_ns_ = 0;
  }

  // Pauses so far.
  [[nodiscard]] HIPPO_ANYWHERE uint32_t rounds() const { return round_; }

  // False when the array has ended, or when this wait has lasted too long.
  HIPPO_ANYWHERE bool goes_on() {
    return patience_.ended() == Ending::none && goes_on_at(now_ns());
  }

  // At a time of the clock.
  HIPPO_ANYWHERE bool goes_on_at(uint64_t now) {
#ifndef __CUDA_ARCH__
    // A process that was stopped finds the answer when it goes on: that time hardly counts. A GPU
    // is not stopped with it.
    const uint64_t away_ns = now - looked_ns_;
    begin_ns_ += begin_ns_ != 0 && away_ns > longest_away_ns ? away_ns - longest_away_ns : 0;
    looked_ns_ = now;
#endif
    if (begin_ns_ == 0) {
      begin_ns_ = now;
      return true;
    }
    const uint64_t waited_ns = now - begin_ns_;
    if (waited_ns > patience_.limit_ns) {
      if (late_ == WhenLate::ends_array) {
        patience_.end(Ending::timed_out);
      }
      return false;
    }
    const uint64_t share_ns = waited_ns / naps_share;
    nap_ns_ = static_cast<uint32_t>(share_ns < longest_nap_ns ? share_ns : longest_nap_ns);
    return true;
  }

 private:
  // Lanes of a warp that have parted take turns while others of them nap: where some are always
  // awake the rest may get no turn, whatever they hold (H100 beneath compute-sanitizer, where
  // rounds take longer than short naps). So a wait that is long naps for a part of its time.
  static constexpr uint64_t naps_share = 256;
  static constexpr uint64_t longest_nap_ns = 16'000'000;
  static constexpr uint64_t longest_away_ns = 1'000'000'000;  // that counts, between two looks

  const Patience& patience_;
  WhenLate late_;
  uint32_t round_ = 0;
  uint32_t nap_ns_ = 0;  // 0: as short as usual
  uint64_t begin_ns_ = 0;
  uint64_t looked_ns_ = 0;  // by a CPU thread
};

}  // namespace hippogriff::ondemand

#endif  // HIPPOGRIFF_ARRAY_WAITING_HPP_
