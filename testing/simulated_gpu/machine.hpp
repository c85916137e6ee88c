// A machine for tests whose threads take turns as a seed says: each run can be had again.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hippogriff::simulated {

// A number after the other, the same ones for a seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) {}

  std::uint64_t next() {
    state_ ^= state_ << 13U;
    state_ ^= state_ >> 7U;
    state_ ^= state_ << 17U;
    return state_ * 0x2545F4914F6CDD1DU >> 8U;
  }

  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

struct MachineOptions {
  std::uint64_t seed = 1;
  std::uint64_t switch_odds = 4;         // one switch in so many accesses, about
  std::uint64_t steps_max = 40'000'000;  // accesses; more have failed
};

// All of a run is one thread of the system: the machine's threads are contexts that switch where
// code of theirs touches watched memory (instrumented.cpp), pauses, or waits for lanes of its warp.
// At most one machine at a time.
class Machine {
 public:
  static constexpr int threads_max = 48;

  explicit Machine(const MachineOptions& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // The one that runs a thread at this moment; null outside run().
  [[nodiscard]] static Machine* running();

  void add(std::function<void()> body);
  // Until all threads have ended, or one has failed: failure() says why then.
  void run();

  // What the machine's threads call.
  [[nodiscard]] int current() const { return current_; }

  void may_switch();           // an access
  void yield();                // a pause
  void block();                // until unblock(the thread)
  void unblock(int thread);    // of another, or that is about to block
  void fail(std::string why);  // ends the run, in the middle of everything: does not return

  [[nodiscard]] std::uint64_t steps() const { return steps_; }

  [[nodiscard]] const std::string& failure() const { return failure_; }

  Random random;

 private:
  struct Thread;

  static void enter();
  void leave_for(int next);
  void switch_to_any();
  void remove(int thread);

  MachineOptions options_;
  std::uint64_t steps_ = 0;
  std::string failure_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<int> ready_;
  std::size_t alive_ = 0;
  int current_ = -1;
  ucontext_t outside_{};
};

}  // namespace hippogriff::simulated
