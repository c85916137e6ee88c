// Slots of the segment, and signs of life of those who have them, kept by the kernel.
#pragma once

#include "node/life.hpp"
#include "node/segment.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hippogriff::node {

inline constexpr std::uint32_t terms = std::uint32_t{1} << 22U;

// As its owner wrote it; all zeros when it is being written or damaged.
ClientIdentity read_identity(const SegmentLayout& shared, std::uint32_t client) noexcept;

// A client that others follow: they keep to its reservations.
struct Leader {
  std::uint32_t client = 0;
  std::uint32_t term = 0;

  // As "3:17", which an environment variable carries.
  [[nodiscard]] std::string text() const;
  static std::optional<Leader> parse(std::string_view text) noexcept;
};

// A slot of a segment, held until the segment's file is closed: at destruction of the segment, at
// the end of the process, and at exec unless it was handed over. Thread-safe once made.
class ClientSlot {
 public:
  // Follows the leader if it lives. `served_pid` is the process that this one serves, or 0. Goes on
  // with the slot of `former_self` where that was carried over from a removed file, as `resumed`
  // says. Throws Error(busy) when all slots are taken.
  ClientSlot(const Segment& segment,
             std::optional<Leader> leader,
             std::uint32_t served_pid = 0,
             std::optional<Leader> former_self = std::nullopt);

  // The slot stays when this process goes on as another program (exec): it lives as long as the
  // process, or any that inherits its descriptor.
  void hand_over();

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

  // Its own index where it follows nobody.
  [[nodiscard]] std::uint32_t leader() const noexcept { return leader_.client; }

  [[nodiscard]] Leader leader_words() const noexcept { return leader_; }

  [[nodiscard]] bool follows() const noexcept { return leader_.client != index_; }

  // False once another client has the leader's slot.
  [[nodiscard]] bool leader_is_in_place() const noexcept;
  // Nothing where nobody ever had the slot.
  [[nodiscard]] std::optional<std::uint32_t> leader_of(std::uint32_t client) const noexcept;
  // Whether a client follows the same leader.
  [[nodiscard]] bool is_fellow(std::uint32_t client) const noexcept;

  // Of the clients that have this slot one after the other, each has another.
  [[nodiscard]] std::uint32_t term() const noexcept { return term_; }

  [[nodiscard]] bool resumed() const noexcept { return resumed_; }

  // Whether the client of a slot lives. Ask not for one's own.
  [[nodiscard]] bool lives(std::uint32_t client) const noexcept;
  // Whether it or any that follows it lives: its reservations are for all of them.
  [[nodiscard]] bool group_lives(std::uint32_t client) const noexcept;
  // Whether it is still the one of that term.
  [[nodiscard]] bool lives_in_term(std::uint32_t client, std::uint32_t term) const noexcept;

  // As its owner wrote it, for messages; 0 when unknown.
  [[nodiscard]] std::uint64_t pid_of(std::uint32_t client) const noexcept;
  // The same, or that of the process which it serves.
  [[nodiscard]] std::uint64_t user_pid_of(std::uint32_t client) const noexcept;
  // Whether that is as this process's pid namespace counts.
  [[nodiscard]] bool pid_is_here(std::uint32_t client) const noexcept;

 private:
  bool try_slot(std::uint32_t client);
  bool resume(const Leader& former_self);
  void choose_leader(std::optional<Leader> leader) noexcept;
  void write_identity(bool handed_over) noexcept;
  [[nodiscard]] bool has_living_follower(std::uint32_t leader, std::uint32_t term) const noexcept;

  const Segment& segment_;
  const std::uint32_t served_pid_;
  std::uint32_t index_ = 0;
  std::uint32_t term_ = 0;
  Leader leader_;
  bool resumed_ = false;
  const Viewer viewer_;
};

}  // namespace hippogriff::node
