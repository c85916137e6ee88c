// Counting, and asking NVML.
#include "noded/guest.hpp"

#include "base/error.hpp"
#include "base/size.hpp"
#include "node/outside.hpp"

#include <algorithm>

namespace hippogriff::noded {

namespace {

// Of the books' devices: without those that GPUs need which nobody has used yet.
std::uint32_t free_devices(const node::NodeView& view) {
  const std::size_t taken = view.devices.size() + node::unnamed_gpus(view);
  return node::devices_max -
         static_cast<std::uint32_t>(std::min<std::size_t>(node::devices_max, taken));
}

}  // namespace

std::uint32_t guest_share(std::uint32_t part_max, std::uint32_t all, std::uint32_t now) noexcept {
  return std::min(part_max, all - std::min(all, now));
}

std::uint32_t guest_clients_max(std::uint32_t clients_max, std::uint32_t clients_now) noexcept {
  return guest_share(std::max(clients_max / clients_part, 1U), clients_max, clients_now);
}

void Guest::take_reservation() {
  const std::scoped_lock turn(mutex_, totals_->mutex);
  if (reservations_ >=
      guest_share(guest_reservations_max, node::reservations_max, totals_->reservations)) {
    throw Error({.status = Status::busy,
                 .operation = "reserve",
                 .detail = "user " + std::to_string(uid_) + " has " +
                           std::to_string(reservations_) + " of the " +
                           std::to_string(totals_->reservations) +
                           " reservations already, all that one user may have"});
  }
  ++reservations_;
  ++totals_->reservations;
}

void Guest::give_reservations(std::uint32_t count) noexcept {
  const std::scoped_lock turn(mutex_, totals_->mutex);
  count = std::min(reservations_, count);
  reservations_ -= count;
  totals_->reservations -= count;
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
  const node::NodeView view = node.view();
  for (std::size_t index = 0; index < view.devices.size(); ++index) {
    const node::DeviceRecord& device = view.devices[index];
    if (device.name_view() == name) {
      // One that nobody uses may have become another: else the first to name it decides for good.
      const bool in_use = std::ranges::any_of(view.reservations, [&](const auto& reservation) {
        return reservation.record.device == index;
      });
      if (device.capacity_bytes != capacity_bytes && in_use) {
        refuse(device.capacity_bytes);
      }
      return capacity_bytes;
    }
  }
  const std::scoped_lock turn(mutex_);
  const std::uint32_t free = free_devices(view);
  if (!devices_.contains(name) && devices_.size() >= std::min(guest_devices_max, free)) {
    throw Error({.status = Status::busy,
                 .operation = "add device to node",
                 .object = std::string(name),
                 .detail = "user " + std::to_string(uid_) + " has named " +
                           std::to_string(devices_.size()) +
                           " already, and the node has room for " + std::to_string(free) +
                           " that NVML does not know"});
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
