// What stands in the memory of a queue pair at the beginning.
#pragma once

#include <hippogriff/array/queue.hpp>

#include <cstddef>
#include <cstdint>

namespace hippogriff::ondemand {

// Throws Error(invalid_argument) unless depth is a power of two from queue_depth_min to
// queue_depth_max.
QueueLayout queue_layout(std::uint32_t depth);

// Throws Error(invalid_argument) unless an array may have so many queues, and they that depth.
void check_queues(std::uint32_t count, std::uint32_t depth);

// Write the first values; every counter begins at `base`, which is 0 but in tests. `own` is an
// image of the submitters' part, which goes to their memory; `wake` may be null.
void initialize_shared(const QueuePair& pair, std::uint64_t base, WakeWord* wake);
void initialize_own(std::byte* own, std::uint32_t depth, std::uint64_t base);

}  // namespace hippogriff::ondemand
