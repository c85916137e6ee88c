// What a program is told on stderr that asks in vain again and again.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>

namespace hippogriff::node {

// A line each for the first few that differ in nothing but numbers; then one in `interval` at most,
// which says how many were left out. Another reason is said at once. Thread-safe.
class Complaints {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::uint64_t first_max = 3;
  static constexpr std::chrono::seconds interval{10};
  static constexpr std::size_t kinds_max = 8;  // that are told apart

  void say(const char* why) noexcept;

  // How many were left out before one that is said now; nothing when that is left out too.
  std::optional<std::uint64_t> count(const char* why, Clock::time_point now) noexcept;

 private:
  struct Kind {
    std::uint64_t of_text = 0;
    std::uint64_t said = 0;
    std::uint64_t left_out = 0;
    Clock::time_point last = Clock::time_point::min();
  };

  Kind& find(std::uint64_t of_text) noexcept;

  std::mutex mutex_;  // guards what follows
  std::array<Kind, kinds_max> kinds_;
};

}  // namespace hippogriff::node
