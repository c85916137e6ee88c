// What processes of one command ask about the reservation that they share: a message each.
#include "base/error.hpp"
#include "noded/connection.hpp"

#include <exception>

namespace hippogriff::noded {

std::string Connection::leader() {
  return failure_of(call({.operation = Operation::share}).reply).object;
}

// For callers without words for errors: 0.
std::uint64_t Connection::ask(const RequestMessage& request) noexcept {
  try {
    return call(request).reply.value;
  } catch (const std::exception&) {
    return 0;
  }
}

bool Connection::take(std::uint32_t device, std::uint64_t size_bytes) noexcept {
  return follows() &&
         ask({.operation = Operation::take, .size_bytes = size_bytes, .device = device}) == 1;
}

void Connection::give(std::uint32_t device, std::uint64_t size_bytes) noexcept {
  if (follows()) {
    ask({.operation = Operation::give, .size_bytes = size_bytes, .device = device});
  }
}

std::uint64_t Connection::granted_bytes(std::uint32_t device) noexcept {
  return ask({.operation = Operation::granted, .device = device});
}

std::uint64_t Connection::group_used_bytes(std::uint32_t device) noexcept {
  return ask({.operation = Operation::group_used, .device = device});
}

std::uint64_t Connection::defer(const node::Request& request) {
  return call({.operation = Operation::defer,
               .size_bytes = request.size_bytes,
               .device = request.device,
               .priority = request.priority})
      .reply.value;
}

std::uint64_t Connection::deferred_bytes(std::uint32_t device) {
  return call({.operation = Operation::deferred, .device = device}).reply.value;
}

void Connection::claim_deferred(std::uint32_t device,
                                std::chrono::milliseconds timeout,
                                const std::function<bool()>& interrupted) {
  call({.operation = Operation::claim, .timeout_ms = wire_timeout_ms(timeout), .device = device},
       interrupted);
}

void Connection::grow_group(std::uint32_t device,
                            std::uint64_t size_bytes,
                            std::chrono::milliseconds timeout,
                            const std::function<bool()>& interrupted) {
  call({.operation = Operation::grow_group,
        .size_bytes = size_bytes,
        .timeout_ms = wire_timeout_ms(timeout),
        .device = device},
       interrupted);
}

}  // namespace hippogriff::noded
