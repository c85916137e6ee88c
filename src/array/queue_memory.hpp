// The memory of a queue pair: how much, and what stands in it at the beginning.
#pragma once

#include <hippogriff/array/queue.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hippogriff::ondemand {

// What the host and the submitters both reach, and what the submitters alone reach, of one queue
// pair: bytes, each a multiple of 128.
struct QueueBytes {
  std::size_t shared = 0;
  std::size_t own = 0;
};

// Throws Error(invalid_argument) unless depth is a power of two from queue_depth_min to
// queue_depth_max.
QueueBytes queue_bytes(std::uint32_t depth);

// The pair whose memory begins at these addresses, 128-byte aligned; `wake` may be null. Writes
// nothing.
QueuePair place_queue(std::byte* shared, std::byte* own, std::uint32_t depth, WakeWord* wake);

// Write the first values; every counter begins at `base`, which is 0 but in tests. `own` is an
// image of queue_bytes().own bytes, which goes to the submitters' memory.
void initialize_shared(const QueuePair& pair, std::uint64_t base);
void initialize_own(std::byte* own, std::uint32_t depth, std::uint64_t base);

}  // namespace hippogriff::ondemand
