// The lock of a segment: a futex word with its owner's slot, that outlives no owner.
#pragma once

#include "node/client_slot.hpp"
#include "node/steps.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace hippogriff::node {

using MonotonicTime = std::chrono::steady_clock::time_point;

// What an Error(busy) calls it that could not have the lock in time.
inline constexpr std::string_view lock_operation = "lock node";

// Whom a word of the lock names: a slot, and the term in which its client had it.
struct LockOwner {
  std::uint32_t client = 0;
  std::uint32_t term = 0;

  bool operator==(const LockOwner&) const = default;
};

// Nobody where the lock is free, or no client could have written that.
std::optional<LockOwner> lock_owner(std::uint32_t word) noexcept;

// Takes a removed segment's lock from an owner who does not go on: what it commits from then on
// counts no more, and it sees so. Nobody owns the lock then. False when it has another owner by
// now.
bool take_from_stopped(std::atomic<std::uint32_t>& word, const LockOwner& owner) noexcept;

// Not for several threads at once: slot and term are the owner. No system call unless it is
// contended.
class SegmentLock {
 public:
  SegmentLock(const Segment& segment, const ClientSlot& slot, const Steps& steps)
      : segment_(segment), slot_(slot), steps_(steps) {}

  // Throws Error(busy) with the owner's pid when a living owner keeps it until the deadline.
  void lock(MonotonicTime deadline);

  // Without waiting: false where somebody has it.
  [[nodiscard]] bool try_lock() noexcept {
    std::uint32_t seen = 0;
    return try_lock(seen);
  }

  void unlock() noexcept;
  // Whether the word still names us: another process may have damaged it, or taken the lock away.
  [[nodiscard]] bool owned() const noexcept;

 private:
  [[nodiscard]] bool try_lock(std::uint32_t& seen) const noexcept;
  [[nodiscard]] bool owner_is_gone(std::uint32_t word) const noexcept;
  [[nodiscard]] bool steal(std::uint32_t word) const noexcept;
  [[nodiscard]] std::uint32_t token() const noexcept;
  [[noreturn]] void refuse(std::uint32_t word, bool changes) const;

  const Segment& segment_;
  const ClientSlot& slot_;
  const Steps& steps_;
};

}  // namespace hippogriff::node
