// IoQueue over io_uring.
#pragma once

#include "storage/registered_buffers.hpp"
#include "storage/storage.hpp"

#include <memory>
#include <string>

namespace hippogriff {

struct RingBuffers {
  bool registers = true;  // the buffers that requests name, where the system lets it
  RegistrationRefusal refusal;
};

// Throws Error(unsupported) with errno where io_uring does not exist or is forbidden, io_error when
// the ring cannot be made.
std::unique_ptr<IoQueue> make_uring_queue(std::size_t depth, const RingBuffers& buffers = {});

// How many buffers the ring holds registered; 0 for other queues. For tests and reports.
std::size_t registered_buffer_count(const IoQueue& queue);

// Tries a ring of one entry. "" when it works, else why not.
std::string why_no_io_uring();

}  // namespace hippogriff
