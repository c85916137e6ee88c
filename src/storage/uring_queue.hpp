// IoQueue over io_uring.
#pragma once

#include "storage/storage.hpp"

#include <memory>
#include <span>
#include <string>

namespace hippogriff {

// Registers `buffers` with the ring where the memory limits let it; requests inside them then save
// the kernel the page lookups, others work as well. Throws Error(unsupported) with errno where
// io_uring does not exist or is forbidden, io_error when the ring cannot be made.
std::unique_ptr<IoQueue> make_uring_queue(std::size_t depth,
                                          std::span<const std::span<std::byte>> buffers);

// How many regions the ring holds registered; 0 for other queues. For tests and reports.
std::size_t registered_buffer_count(const IoQueue& queue);

// Tries a ring of one entry. "" when it works, else why not.
std::string why_no_io_uring();

}  // namespace hippogriff
