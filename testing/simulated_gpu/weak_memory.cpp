// What happened before what, word by word.
#include "testing/simulated_gpu/weak_memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

namespace hippogriff::simulated {

namespace {

constexpr std::size_t granule_bytes = 4;
constexpr std::size_t stores_max = 12;  // of a word; older ones nobody sees any more

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): hooks have no argument
WeakMemory* the_memory = nullptr;

}  // namespace

void VectorClock::join(const VectorClock& other) {
  for (std::size_t i = 0; i < of.size(); ++i) {
    of[i] = std::max(of[i], other.of[i]);
  }
}

Order Order::of(int memory_order) {
  switch (memory_order) {
    case __ATOMIC_RELAXED:
      return {};
    case __ATOMIC_CONSUME:
    case __ATOMIC_ACQUIRE:
      return {.acquires = true, .releases = false};
    case __ATOMIC_RELEASE:
      return {.acquires = false, .releases = true};
    default:
      return {.acquires = true, .releases = true};
  }
}

WeakMemory::WeakMemory(Machine& machine, std::span<std::byte> watched, std::uint64_t stale_of_16)
    : machine_(machine),
      watched_(watched),
      stale_of_16_(stale_of_16),
      threads_(Machine::threads_max),
      granules_(watched.size() / granule_bytes + 1) {
  the_memory = this;
}

WeakMemory::~WeakMemory() {
  the_memory = nullptr;
}

WeakMemory* WeakMemory::of_this_run() {
  return Machine::running() == nullptr ? nullptr : the_memory;
}

std::uint32_t WeakMemory::tick() {
  return ++mine().clock.of[static_cast<std::size_t>(machine_.current())];
}

void WeakMemory::know(const VectorClock& clock) {
  mine().clock.join(clock);
  mine().fenced.reset();
}

void WeakMemory::leave(const VectorClock& meeting) {
  know(meeting);
}

void WeakMemory::note_release() {
  mine().released = mine().clock.of[static_cast<std::size_t>(machine_.current())];
  mine().fenced.reset();
}

// A release is a fence (MEMBAR) on a GPU: what comes after it is seen after what came before.
const std::shared_ptr<const VectorClock>& WeakMemory::fences() {
  ThreadState& state = mine();
  if (state.fenced == nullptr) {
    VectorClock ordered = state.clock;
    ordered.of[static_cast<std::size_t>(machine_.current())] = state.released;
    state.fenced = std::make_shared<const VectorClock>(ordered);
  }
  return state.fenced;
}

std::span<WeakMemory::Granule> WeakMemory::granules_of(const void* there, std::size_t bytes) {
  const auto begin =
      static_cast<std::size_t>(static_cast<const std::byte*>(there) - watched_.data());
  const std::size_t first = begin / granule_bytes;
  return std::span(granules_).subspan(first, (begin + bytes - 1) / granule_bytes - first + 1);
}

WeakMemory::Word& WeakMemory::word_at(const void* word, std::uint64_t latest) {
  auto [found, is_new] = words_.try_emplace(word);
  if (is_new) {
    found->second.stores.push_back({.value = latest});
  }
  return found->second;
}

std::uint64_t WeakMemory::load(const void* word, std::uint64_t latest, Order order) {
  Word& its = word_at(word, latest);
  ThreadState& state = mine();
  tick();
  std::uint64_t& seen = its.seen[static_cast<std::size_t>(machine_.current())];
  const std::uint64_t newest = its.stores.size() - 1;
  std::uint64_t oldest = seen > its.dropped ? seen - its.dropped : 0;
  for (std::uint64_t i = newest; i > oldest; --i) {
    if (state.clock.has(its.stores[i].thread, its.stores[i].epoch)) {
      oldest = i;
    }
  }
  std::uint64_t chosen = newest;
  if (oldest < newest && machine_.random.below(16) < stale_of_16_) {
    chosen = oldest + machine_.random.below(newest - oldest);
  }
  seen = chosen + its.dropped;
  const Store& store = its.stores[chosen];
  if (store.releases && order.acquires) {
    know(store.released);
  } else if (store.releases) {
    state.not_yet_acquired.join(store.released);
  }
  const Granule& granule = granules_of(word, 1).front();
  if (granule.fenced != nullptr) {  // was written by a plain access
    state.not_yet_acquired.join(*granule.fenced);
  }
  return store.value;
}

void WeakMemory::append(Word& word, const Store& store) {
  word.stores.push_back(store);
  if (word.stores.size() > stores_max) {
    constexpr std::size_t half = stores_max / 2;
    word.stores.erase(word.stores.begin(), word.stores.begin() + half);
    word.dropped += half;
  }
  word.seen[static_cast<std::size_t>(machine_.current())] = word.stores.size() - 1 + word.dropped;
}

void WeakMemory::check_write(Granule& granule, const void* there) {
  const VectorClock& known = mine().clock;
  for (const auto& [thread, epoch] : granule.readers) {
    if (!known.has(thread, epoch)) {
      race("writes what is being read", there, thread);
    }
  }
  granule.readers.clear();
}

void WeakMemory::store(const void* word, std::uint64_t latest, std::uint64_t value, Order order) {
  Word& its = word_at(word, latest);
  const std::uint32_t epoch = tick();
  if (order.releases) {
    note_release();
  }
  Granule& granule = granules_of(word, 1).front();
  check_write(granule, word);
  granule.writer = machine_.current();
  granule.epoch = epoch;
  granule.fenced.reset();
  append(its,
         {.value = value,
          .thread = machine_.current(),
          .epoch = epoch,
          .releases = order.releases,
          .released = order.releases ? mine().clock : VectorClock{}});
}

// What reads and writes at once reads the newest, and goes on with what that released.
void WeakMemory::exchange(const void* word,
                          std::uint64_t latest,
                          std::uint64_t value,
                          Order order) {
  Word& its = word_at(word, latest);
  const Store before = its.stores.back();
  if (before.releases && order.acquires) {
    know(before.released);
  } else if (before.releases) {
    mine().not_yet_acquired.join(before.released);
  }
  store(word, latest, value, order);
  if (before.releases) {
    its.stores.back().releases = true;
    its.stores.back().released.join(before.released);
  }
}

void WeakMemory::acquire_fence() {
  know(mine().not_yet_acquired);
}

void WeakMemory::read(const void* there, std::size_t bytes) {
  const std::uint32_t epoch = tick();
  for (Granule& granule : granules_of(there, bytes)) {
    if (!mine().clock.has(granule.writer, granule.epoch)) {
      race("reads what is being written", there, granule.writer);
    }
    std::erase_if(granule.readers,
                  [&](const auto& reader) { return reader.first == machine_.current(); });
    granule.readers.emplace_back(machine_.current(), epoch);
  }
}

void WeakMemory::write(const void* there, std::size_t bytes) {
  const std::uint32_t epoch = tick();
  const std::span<Granule> granules = granules_of(there, bytes);
  for (Granule& granule : granules) {
    if (!mine().clock.has(granule.writer, granule.epoch)) {
      race("writes what is being written", there, granule.writer);
    }
    check_write(granule, there);
    granule.writer = machine_.current();
    granule.epoch = epoch;
    granule.fenced = fences();
  }
  // Their values are the memory's from now on.
  const auto first = static_cast<std::size_t>(granules.data() - granules_.data());
  for (std::size_t i = first; i < first + granules.size(); ++i) {
    words_.erase(watched_.data() + i * granule_bytes);
  }
}

void WeakMemory::race(const char* what, const void* there, int other) {
  machine_.fail("thread " + std::to_string(machine_.current()) + " " + what + " by thread " +
                std::to_string(other) + ", at byte " +
                std::to_string(static_cast<const std::byte*>(there) - watched_.data()) +
                " of the memory");
}

}  // namespace hippogriff::simulated
