// The host memory that one transfer may use at a time: counted where lanes take slots of the
// pinbuffer and pieces of the parking, because plans are only intentions.
#pragma once

#include "base/range.hpp"
#include "transfer/pinbuffer.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

namespace hippogriff {

// Thread-safe; never waits.
class HostBudget {
 public:
  // One channel's slots. Budgets count in steps of this, because the pinbuffer grows by it.
  static constexpr std::uint64_t bytes_min = Pinbuffer::slot_bytes * Pinbuffer::segment_slots;

  // `bytes` 0: no bound.
  explicit HostBudget(std::uint64_t bytes)
      : bytes_(bytes == 0 ? unbounded : align_down(bytes, bytes_min)) {}

  // A whole number of steps; beyond any memory when there is no bound.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  [[nodiscard]] bool bounded() const { return bytes_ != unbounded; }

  // False, and nothing taken, when there is less.
  [[nodiscard]] bool take(std::uint64_t bytes) { return take_up_to(bytes, bytes_); }

  // The same, but half of the budget stays for others.
  [[nodiscard]] bool take_of_half(std::uint64_t bytes) {
    return take_up_to(bytes, bounded() ? bytes_ / 2 : bytes_);
  }

  void give_back(std::uint64_t bytes) {
    const std::uint64_t used = used_bytes_.load();
    std::uint64_t most = most_bytes_.load();
    while (most < used && !most_bytes_.compare_exchange_weak(most, used)) {
    }
    used_bytes_ -= bytes;
  }

  // What was taken, and then was not there: it has not been used.
  void give_back_unused(std::uint64_t bytes) { used_bytes_ -= bytes; }

  [[nodiscard]] std::uint64_t left_bytes() const { return bytes_ - used_bytes_.load(); }

  // So much was used at one time.
  [[nodiscard]] std::uint64_t most_bytes() const {
    return std::max(most_bytes_.load(), used_bytes_.load());
  }

 private:
  static constexpr std::uint64_t unbounded = std::numeric_limits<std::uint64_t>::max();

  bool take_up_to(std::uint64_t bytes, std::uint64_t bound_bytes) {
    std::uint64_t used = used_bytes_.load();
    do {
      if (used + bytes > bound_bytes) {
        return false;
      }
    } while (!used_bytes_.compare_exchange_weak(used, used + bytes));
    return true;
  }

  const std::uint64_t bytes_;
  std::atomic<std::uint64_t> used_bytes_{0};
  std::atomic<std::uint64_t> most_bytes_{0};  // before anything was given back
};

}  // namespace hippogriff
