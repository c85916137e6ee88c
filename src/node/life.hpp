// Signs of life of those who have slots, kept by the kernel: locks, and start times against pid
// reuse.
#pragma once

#include "node/layout.hpp"

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

namespace hippogriff::node {

struct ProcessFacts {
  // absent: no such process, or a zombie without living threads; unknown: /proc did not say.
  enum class State { running, absent, unknown } state = State::unknown;
  std::uint64_t start_time = 0;  // clock ticks after boot
};

// From /proc.
ProcessFacts process_facts(std::uint64_t pid) noexcept;

// Locks that clients have on the bytes of their slots, wherever the file of the segment is now.
struct SlotLock {
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::uint32_t client = 0;
};

// Whether there is one that is wanted, of all segments of the machine, from /proc/locks; nothing
// where that cannot be read. It takes several readings to say that there is none where that is
// long, as many as 16 while locks come and go.
std::optional<bool> has_slot_lock(const std::function<bool(const SlotLock&)>& wanted) noexcept;

// The device that the kernel names in the locks of a file: the one that stat tells in tmpfs, where
// segments are, and elsewhere perhaps another (btrfs, overlayfs), so that it is not known: 0.
std::uint64_t lock_device(int fd) noexcept;

// True also when the kernel cannot say.
bool byte_is_locked(int fd, std::int64_t offset) noexcept;

// Who looks, from which namespaces. Thread-safe: nothing of it changes.
class Viewer {
 public:
  Viewer() noexcept;

  [[nodiscard]] const ProcessFacts& own() const noexcept { return own_; }

  // Of two that are the same /proc tells both the same pids and the same times at which they began.
  [[nodiscard]] std::uint64_t pid_namespace() const noexcept { return pid_namespace_; }

  // Nothing when /proc does not say: it is missing, or another container's.
  [[nodiscard]] std::optional<bool> process_lives(const ClientIdentity& identity) const noexcept;
  // Whether the client of a slot lives whose byte is locked or not in the file that has it. One who
  // was carried over from a removed file has its lock there.
  [[nodiscard]] bool lives(const ClientIdentity& identity,
                           std::uint32_t client,
                           bool locked) const noexcept;

 private:
  const ProcessFacts own_;
  std::uint64_t pid_namespace_ = 0;
};

}  // namespace hippogriff::node
