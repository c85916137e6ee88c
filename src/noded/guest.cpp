// Counting, and asking NVML.
#include "noded/guest.hpp"

#include "base/error.hpp"
#include "base/size.hpp"
#include "node/outside.hpp"

#include <algorithm>

namespace hippogriff::noded {

std::uint32_t guest_clients_max(std::uint32_t clients_max, std::uint32_t clients_now) noexcept {
  return std::min(std::max(clients_max / clients_part, 1U),
                  clients_max - std::min(clients_max, clients_now));
}

void Guest::take_reservation() {
  const std::scoped_lock turn(mutex_);
  if (reservations_ == guest_reservations_max) {
    throw Error({.status = Status::busy,
                 .operation = "reserve",
                 .detail = "user " + std::to_string(uid_) + " has " +
                           std::to_string(guest_reservations_max) +
                           " reservations already, all that one user may have"});
  }
  ++reservations_;
}

void Guest::give_reservations(std::uint32_t count) noexcept {
  const std::scoped_lock turn(mutex_);
  reservations_ -= std::min(reservations_, count);
}

std::uint64_t Guest::check_device(node::NodeClient& node,
                                  std::string_view name,
                                  std::uint64_t capacity_bytes) {
  if (decides_) {
    return capacity_bytes;
  }
  const auto refuse = [&](std::uint64_t known_bytes) {
    throw_invalid("add device to node",
                  std::string(name) + " has " + format_size(known_bytes) + ", not " +
                      format_size(capacity_bytes));
  };
  if (const auto known_bytes = node::capacity_of(std::string(name))) {
    if (capacity_bytes > *known_bytes || capacity_bytes < *known_bytes - *known_bytes / 20) {
      refuse(*known_bytes);
    }
    return *known_bytes;
  }
  for (const auto& device : node.view().devices) {
    if (device.name_view() == name) {
      if (device.capacity_bytes != capacity_bytes) {
        refuse(device.capacity_bytes);
      }
      return capacity_bytes;
    }
  }
  const std::scoped_lock turn(mutex_);
  if (devices_.size() == guest_devices_max && !devices_.contains(name)) {
    throw Error({.status = Status::busy,
                 .operation = "add device to node",
                 .object = std::string(name),
                 .detail = "user " + std::to_string(uid_) + " has named " +
                           std::to_string(guest_devices_max) + " already"});
  }
  devices_.emplace(name);
  return capacity_bytes;
}

void Guest::check_policy() const {
  if (!decides_) {
    throw Error(
        {.status = Status::unsupported,
         .operation = "set policy of node",
         .detail = "the server's own user and root choose it, not user " + std::to_string(uid_)});
  }
}

}  // namespace hippogriff::noded
