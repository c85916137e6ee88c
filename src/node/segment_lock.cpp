// A three-state futex lock (free, owned, owned and waited for) that can be taken from the dead.
#include "node/segment_lock.hpp"

#include "base/error.hpp"
#include "node/futex.hpp"

#include <algorithm>
#include <string>
#include <thread>

namespace hippogriff::node {

namespace {

constexpr std::uint32_t waited_for = 0x8000'0000U;
constexpr std::uint32_t owner_mask = 0x7fff'ffffU;
constexpr std::uint32_t slot_bits = 9;
constexpr std::uint32_t slot_mask = (1U << slot_bits) - 1;

// A slot that nobody has: what others see as free to be taken.
constexpr std::uint32_t taken_away = slot_mask;

static_assert(clients_max < taken_away && terms == 1U << (31 - slot_bits));
constexpr int spins_max = 40;
// How late the death of an owner, or a waker, is seen.
constexpr std::chrono::milliseconds slice{10};

}  // namespace

std::optional<LockOwner> lock_owner(std::uint32_t word) noexcept {
  const std::uint32_t owner = word & slot_mask;
  if (owner == 0 || owner > clients_max) {
    return std::nullopt;
  }
  return LockOwner{.client = owner - 1, .term = (word & owner_mask) >> slot_bits};
}

bool take_from_stopped(std::atomic<std::uint32_t>& word, const LockOwner& owner) noexcept {
  std::uint32_t seen = word.load();
  while (lock_owner(seen) == owner) {
    if (word.compare_exchange_weak(seen, (seen & waited_for) | taken_away)) {
      return true;
    }
  }
  return false;
}

// Slot + 1 and term: nobody writes a dead owner's again, so that the word can be taken from it.
std::uint32_t SegmentLock::token() const noexcept {
  return (slot_.term() << slot_bits) | (slot_.index() + 1);
}

bool SegmentLock::try_lock(std::uint32_t& seen) const noexcept {
  seen = 0;
  return segment_.shared().lock.compare_exchange_strong(
      seen, token(), std::memory_order_acquire, std::memory_order_relaxed);
}

void SegmentLock::lock(MonotonicTime deadline) {
  std::uint32_t seen = 0;
  for (int spin = 0; spin < spins_max; ++spin) {
    if (try_lock(seen)) {
      return;
    }
    std::this_thread::yield();
  }
  std::atomic<std::uint32_t>& word = segment_.shared().lock;
  const std::uint32_t first = seen;
  bool changes = false;
  for (bool look = false;;) {
    seen = word.load(std::memory_order_relaxed);
    changes = changes || (seen & owner_mask) != (first & owner_mask);
    // Others may sleep as well, and we do not know: whoever has slept keeps the mark.
    if (seen == 0) {
      if (word.compare_exchange_strong(
              seen, token() | waited_for, std::memory_order_acquire, std::memory_order_relaxed)) {
        return;
      }
      continue;
    }
    const auto left = deadline - std::chrono::steady_clock::now();
    const bool late = left <= std::chrono::nanoseconds::zero();
    if ((look || late || (seen & slot_mask) == slot_.index() + 1) && owner_is_gone(seen)) {
      if (steal(seen)) {
        return;
      }
      futex_wait(word, seen, std::chrono::microseconds(100));
      if (!late) {
        continue;
      }
    }
    if (late) {
      refuse(seen, changes);
    }
    if ((seen & waited_for) != 0 ||
        word.compare_exchange_strong(seen, seen | waited_for, std::memory_order_relaxed)) {
      const auto start = std::chrono::steady_clock::now();
      futex_wait(word, seen | waited_for, std::min<std::chrono::nanoseconds>(slice, left));
      look = std::chrono::steady_clock::now() - start >= slice / 2;
    }
  }
}

// The word with our own slot, while we wait for it, is a dead predecessor's.
bool SegmentLock::owner_is_gone(std::uint32_t word) const noexcept {
  const std::optional<LockOwner> owner = lock_owner(word);
  return !owner || owner->client == slot_.index() ||
         !slot_.lives_in_term(owner->client, owner->term);
}

bool SegmentLock::steal(std::uint32_t word) const noexcept {
  step(steps_, "stealing");
  const bool stolen = segment_.shared().lock.compare_exchange_strong(
      word, token() | waited_for, std::memory_order_acquire, std::memory_order_relaxed);
  step(steps_, "stolen");
  return stolen;
}

void SegmentLock::refuse(std::uint32_t word, bool changes) const {
  const std::uint64_t pid = slot_.pid_of(std::min((word & slot_mask) - 1, clients_max - 1));
  throw Error({.status = Status::busy,
               .operation = std::string(lock_operation),
               .object = segment_.path(),
               .detail = "process " + std::to_string(pid) +
                         (changes ? " holds it now, and others did before: too many use it"
                                  : " holds it and does not go on; is it stopped?")});
}

bool SegmentLock::owned() const noexcept {
  return (segment_.shared().lock.load(std::memory_order_seq_cst) & owner_mask) == token();
}

void SegmentLock::unlock() noexcept {
  std::atomic<std::uint32_t>& word = segment_.shared().lock;
  std::uint32_t seen = word.load(std::memory_order_relaxed);
  while ((seen & owner_mask) == token()) {
    if (word.compare_exchange_weak(seen, 0, std::memory_order_release, std::memory_order_relaxed)) {
      step(steps_, "unlocked");
      if ((seen & waited_for) != 0) {
        futex_wake(word, 1);
      }
      return;
    }
  }
}

}  // namespace hippogriff::node
