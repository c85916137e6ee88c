// How many queues an array has, how deep they are, and so how much of its data is under way.
#pragma once

#include "array/storage_array.hpp"

#include <cstdint>

namespace hippogriff::ondemand {

// Whether commands name staging memory, because the host does not reach the lines.
[[nodiscard]] bool is_staged(const StorageArrayOptions& options);

// Beside the ordinary ones: queues of commands that nobody waits for. Most writes are such, and a
// drive has to have megabytes of them under way.
[[nodiscard]] std::uint32_t pending_queues(const StorageArrayOptions& options);

// Sets what of queue_count and queue_depth is 0.
void choose_queues(StorageArrayOptions& options);

}  // namespace hippogriff::ondemand
