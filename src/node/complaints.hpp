// What a program is told on stderr that asks in vain again and again.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

namespace hippogriff::node {

// A line each for the first few; then one in `interval` at most, which says how many were left out.
// Thread-safe.
class Complaints {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint64_t first_max = 3;
  static constexpr std::chrono::seconds interval{10};

  void say(const char* why) noexcept;

  // How many were left out before one that is said now; nothing when that is left out too.
  std::optional<std::uint64_t> count(Clock::time_point now) noexcept;

 private:
  std::mutex mutex_;  // guards what follows
  std::uint64_t said_ = 0;
  std::uint64_t left_out_ = 0;
  Clock::time_point last_;
};

}  // namespace hippogriff::node
