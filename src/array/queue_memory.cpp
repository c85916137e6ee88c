// The first values of queue pairs.
#include "array/queue_memory.hpp"

#include "base/error.hpp"

#include <bit>
#include <cstring>
#include <new>
#include <string>

namespace hippogriff::ondemand {

namespace {

constexpr std::uint32_t queue_count_max = 1024;
// 16 times as many as an array has by itself. Each takes some 500 bytes of the host's memory, and
// is set up by itself.
constexpr std::uint64_t queue_slots_max = std::uint64_t{1} << 20;

}  // namespace

QueueLayout queue_layout(std::uint32_t depth) {
  if (!std::has_single_bit(depth) || depth < queue_depth_min || depth > queue_depth_max) {
    throw_invalid("make queue",
                  "queue depth " + std::to_string(depth) + " is not a power of two from " +
                      std::to_string(queue_depth_min) + " to " + std::to_string(queue_depth_max));
  }
  return {depth};
}

void check_queues(std::uint32_t count, std::uint32_t depth) {
  static_cast<void>(queue_layout(depth));
  if (count > queue_count_max) {
    throw_invalid("make queues", "there are at most " + std::to_string(queue_count_max));
  }
  if (std::uint64_t{count} * depth > queue_slots_max) {
    throw_invalid("make queues",
                  std::to_string(count) + " queues of " + std::to_string(depth) +
                      " commands have more than " + std::to_string(queue_slots_max) +
                      " together: take fewer, or shorter ones");
  }
}

void initialize_shared(const QueuePair& pair, std::uint64_t base, WakeWord* wake) {
  const std::uint64_t entries = pair.completion_depth();
  std::memset(static_cast<void*>(pair.commands()), 0, pair.depth * sizeof(Command));
  std::memset(static_cast<void*>(pair.failures()), 0, pair.depth * sizeof(FailureRecord));
  for (std::uint64_t position = base; position != base + entries; ++position) {
    CompletionWord word;
    word.phase = !pair.phase_of(position);
    pair.completions()[position & (entries - 1)] = {0, pack(word)};
  }
  Bells& bells = *new (&pair.bells()) Bells;
  bells.doorbells.submission_tail = pair.slot_of(base);
  bells.doorbells.completion_head = static_cast<std::uint32_t>(base & (entries - 1));
  bells.wake = wake;
}

void initialize_own(std::byte* own, std::uint32_t depth, std::uint64_t base) {
  std::memset(own, 0, QueueLayout{depth}.own_bytes());
  QueueState& state = *new (own) QueueState;
  state.ticket = base;
  state.tail = base;
  state.submission_head = base;
  state.completion_head = base;
  for (std::uint64_t ticket = base; ticket != base + depth; ++ticket) {
    new (own + QueueLayout::slots() + (ticket & (depth - 1)) * sizeof(QueueSlot))
        QueueSlot{ticket, 0, 0};
  }
}

}  // namespace hippogriff::ondemand
