// IoQueue over a pool of threads that call pread and pwrite.
#pragma once

#include "storage/storage.hpp"

#include <memory>

namespace hippogriff {

// Starts up to min(depth, 8) threads as requests come, with all signals blocked.
std::unique_ptr<IoQueue> make_thread_queue(std::size_t depth);

}  // namespace hippogriff
