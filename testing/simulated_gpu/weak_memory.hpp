// Memory that is as weak as C++ lets it be, and says where threads race.
//
// What a load may return is what C++ allows: any store to the word that is not older than one which
// has happened before, or than one the thread has seen. Clocks of vectors tell what happened
// before. A GPU's memory is hardly stronger (PTX's model is C++'s with scopes), and no processor
// that tests run on shows it.
#pragma once

#include "testing/simulated_gpu/machine.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace hippogriff::simulated {

// How much of each thread is known.
struct VectorClock {
  std::array<std::uint32_t, Machine::threads_max> of{};

  void join(const VectorClock& other);

  [[nodiscard]] bool has(int thread, std::uint32_t epoch) const {
    return thread < 0 || of[static_cast<std::size_t>(thread)] >= epoch;
  }
};

struct Order {
  bool acquires = false;
  bool releases = false;

  static Order of(int memory_order);
};

// Of one machine's run. Values are those of the memory itself as long as nobody has stored: tests
// may set it up before.
class WeakMemory {
 public:
  // Of 16 loads that could return something older, `stale_of_16` do.
  WeakMemory(Machine& machine, std::span<std::byte> watched, std::uint64_t stale_of_16);
  ~WeakMemory();
  WeakMemory(const WeakMemory&) = delete;
  WeakMemory& operator=(const WeakMemory&) = delete;

  // That of the machine that runs; null where nothing is watched.
  [[nodiscard]] static WeakMemory* of_this_run();

  [[nodiscard]] bool watches(const void* there) const {
    const auto* byte = static_cast<const std::byte*>(there);
    return byte >= watched_.data() && byte < watched_.data() + watched_.size();
  }

  // Atomic accesses. `latest` is what the memory holds.
  std::uint64_t load(const void* word, std::uint64_t latest, Order order);
  void store(const void* word, std::uint64_t latest, std::uint64_t value, Order order);
  void exchange(const void* word, std::uint64_t latest, std::uint64_t value, Order order);
  void acquire_fence();
  // Others. Ends the run where two threads race.
  void read(const void* there, std::size_t bytes);
  void write(const void* there, std::size_t bytes);

  // Lanes that meet know of each other what they have done before: each comes, then leaves.
  void come(VectorClock& meeting) { meeting.join(mine().clock); }

  void leave(const VectorClock& meeting);

  [[nodiscard]] Machine& machine() const { return machine_; }

 private:
  struct Store {
    std::uint64_t value = 0;
    int thread = -1;
    std::uint32_t epoch = 0;
    bool releases = false;
    VectorClock released;
  };

  struct Word {
    std::vector<Store> stores;  // the newest ones
    std::uint64_t dropped = 0;  // that were before those
    std::array<std::uint64_t, Machine::threads_max> seen{};
  };

  // Four bytes.
  struct Granule {
    int writer = -1;
    std::uint32_t epoch = 0;
    std::shared_ptr<const VectorClock> fenced;  // what the writer's fences had ordered before
    std::vector<std::pair<int, std::uint32_t>> readers;
  };

  struct ThreadState {
    VectorClock clock;
    VectorClock not_yet_acquired;  // a fence acquires it
    std::uint32_t released = 0;    // its own epoch when it last did
    std::shared_ptr<const VectorClock> fenced;
  };

  ThreadState& mine() { return threads_[static_cast<std::size_t>(machine_.current())]; }

  std::uint32_t tick();
  void know(const VectorClock& clock);
  std::span<Granule> granules_of(const void* there, std::size_t bytes);
  Word& word_at(const void* word, std::uint64_t latest);
  void append(Word& word, const Store& store);
  void note_release();
  const std::shared_ptr<const VectorClock>& fences();
  void check_write(Granule& granule, const void* there);
  void race(const char* what, const void* there, int other);

  Machine& machine_;
  std::span<std::byte> watched_;
  std::uint64_t stale_of_16_;
  std::vector<ThreadState> threads_;
  std::unordered_map<const void*, Word> words_;
  std::vector<Granule> granules_;
};

}  // namespace hippogriff::simulated
