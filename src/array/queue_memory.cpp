// Places the parts of a queue pair one after the other.
#include "array/queue_memory.hpp"

#include "base/error.hpp"

#include <bit>
#include <cstring>
#include <new>
#include <string>

namespace hippogriff::ondemand {

namespace {

constexpr std::size_t alignment = 128;

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Offsets of the parts.
struct SharedParts {
  explicit SharedParts(std::size_t depth)
      : completions(depth * sizeof(Command)),
        doorbells(aligned(completions + 2 * depth * sizeof(Completion))),
        failures(doorbells + sizeof(Doorbells)),
        end(aligned(failures + depth * sizeof(FailureRecord))) {}

  std::size_t completions;
  std::size_t doorbells;
  std::size_t failures;
  std::size_t end;
};

struct OwnParts {
  explicit OwnParts(std::size_t depth)
      : slots(sizeof(QueueState)),
        marks(slots + depth * sizeof(QueueSlot)),
        end(aligned(marks + (depth + 63) / 64 * sizeof(std::uint64_t))) {}

  std::size_t slots;
  std::size_t marks;
  std::size_t end;
};

}  // namespace

QueueBytes queue_bytes(std::uint32_t depth) {
  if (!std::has_single_bit(depth) || depth < queue_depth_min || depth > queue_depth_max) {
    throw_invalid("make queue",
                  "queue depth " + std::to_string(depth) + " is not a power of two from " +
                      std::to_string(queue_depth_min) + " to " + std::to_string(queue_depth_max));
  }
  return {SharedParts(depth).end, OwnParts(depth).end};
}

QueuePair place_queue(std::byte* shared, std::byte* own, std::uint32_t depth, WakeWord* wake) {
  const SharedParts shared_parts(depth);
  const OwnParts own_parts(depth);
  QueuePair pair;
  pair.commands = reinterpret_cast<Command*>(shared);
  pair.completions = reinterpret_cast<Completion*>(shared + shared_parts.completions);
  pair.doorbells = reinterpret_cast<Doorbells*>(shared + shared_parts.doorbells);
  pair.failures = reinterpret_cast<FailureRecord*>(shared + shared_parts.failures);
  pair.wake = wake;
  pair.state = reinterpret_cast<QueueState*>(own);
  pair.slots = reinterpret_cast<QueueSlot*>(own + own_parts.slots);
  pair.marks = reinterpret_cast<std::uint64_t*>(own + own_parts.marks);
  pair.depth = depth;
  return pair;
}

void initialize_shared(const QueuePair& pair, std::uint64_t base) {
  const std::uint64_t entries = pair.completion_depth();
  std::memset(static_cast<void*>(pair.commands), 0, pair.depth * sizeof(Command));
  std::memset(static_cast<void*>(pair.failures), 0, pair.depth * sizeof(FailureRecord));
  for (std::uint64_t position = base; position != base + entries; ++position) {
    CompletionWord word;
    word.phase = !pair.phase_of(position);
    pair.completions[position & (entries - 1)] = {0, pack(word)};
  }
  *pair.doorbells = {};
  pair.doorbells->submission_tail = pair.slot_of(base);
  pair.doorbells->completion_head = static_cast<std::uint32_t>(base & (entries - 1));
}

void initialize_own(std::byte* own, std::uint32_t depth, std::uint64_t base) {
  const OwnParts parts(depth);
  std::memset(own, 0, parts.end);
  QueueState& state = *new (own) QueueState;
  state.ticket = base;
  state.tail = base;
  state.submission_head = base;
  state.completion_head = base;
  for (std::uint64_t ticket = base; ticket != base + depth; ++ticket) {
    new (own + parts.slots + (ticket & (depth - 1)) * sizeof(QueueSlot)) QueueSlot{ticket, 0, 0};
  }
}

}  // namespace hippogriff::ondemand
