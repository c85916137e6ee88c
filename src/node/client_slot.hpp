// Slots of the segment, and signs of life of those who have them, kept by the kernel.
#pragma once

#include "node/segment.hpp"

#include <cstdint>

namespace hippogriff::node {

inline constexpr std::uint32_t terms = std::uint32_t{1} << 22U;

struct ProcessFacts {
  // absent: no such process, or a zombie without living threads; unknown: /proc did not say.
  enum class State { running, absent, unknown } state = State::unknown;
  std::uint64_t start_time = 0;  // clock ticks after boot
};

// From /proc.
ProcessFacts process_facts(std::uint64_t pid) noexcept;

// A slot of a segment, held until the segment's file is closed: at destruction of the segment, at
// the end of the process, and at exec. Thread-safe once made.
class ClientSlot {
 public:
  // Throws Error(busy) when all slots are taken.
  explicit ClientSlot(const Segment& segment);

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

  // Of the clients that have this slot one after the other, each has another.
  [[nodiscard]] std::uint32_t term() const noexcept { return term_; }

  // Whether the client of a slot lives. Ask not for one's own.
  [[nodiscard]] bool lives(std::uint32_t client) const noexcept;
  // Whether it is still the one of that term.
  [[nodiscard]] bool lives_in_term(std::uint32_t client, std::uint32_t term) const noexcept;

  // As its owner wrote it, for messages; 0 when unknown.
  [[nodiscard]] std::uint64_t pid_of(std::uint32_t client) const noexcept;

 private:
  void write_identity() noexcept;

  const Segment& segment_;
  std::uint32_t index_ = 0;
  std::uint32_t term_ = 0;
  std::uint64_t pid_namespace_ = 0;
  ProcessFacts own_;
};

}  // namespace hippogriff::node
