// What one user of a group's server may have, so that the others find room beside him.
#pragma once

#include "node/node.hpp"

#include <sys/types.h>

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace hippogriff::noded {

// Of the server's clients a user may have this part, and no more than are free: however many are
// greedy, some places stay.
inline constexpr std::uint32_t clients_part = 4;
// Of the books' reservations, granted and waiting.
inline constexpr std::uint32_t guest_reservations_max = node::reservations_max / 4;
// Of the books' devices, for such as NVML does not know.
inline constexpr std::size_t guest_devices_max = node::devices_max / 2;

std::uint32_t guest_clients_max(std::uint32_t clients_max, std::uint32_t clients_now) noexcept;

// A user over all his connections. Thread-safe.
class Guest {
 public:
  // One who `decides` is believed what he says about others, and chooses the policy.
  Guest(uid_t uid, bool decides) : uid_(uid), decides_(decides) {}

  [[nodiscard]] bool decides() const noexcept { return decides_; }

  // Throws Error(busy) when he has all that he may have.
  void take_reservation();
  void give_reservations(std::uint32_t count) noexcept;

  // The size to enter in the books. A wrong one would mislead all others, and a name stays there:
  // NVML's counts where it knows the device, to which CUDA gives a little less, else that of
  // whoever named it first. Throws Error: invalid_argument for another, busy for one more name than
  // he may give.
  std::uint64_t check_device(node::NodeClient& node,
                             std::string_view name,
                             std::uint64_t capacity_bytes);
  // Throws Error(unsupported) where he does not decide.
  void check_policy() const;

 private:
  const uid_t uid_;
  const bool decides_;
  std::mutex mutex_;  // guards all below
  std::uint32_t reservations_ = 0;
  std::set<std::string, std::less<>> devices_;
};

// A reservation that is being made: given back unless it is kept.
class GuestReservation {
 public:
  // `guest` may be null: nothing is counted.
  explicit GuestReservation(Guest* guest) : guest_(guest) {
    if (guest_ != nullptr) {
      guest_->take_reservation();
    }
  }

  ~GuestReservation() {
    if (guest_ != nullptr) {
      guest_->give_reservations(1);
    }
  }

  GuestReservation(const GuestReservation&) = delete;
  GuestReservation& operator=(const GuestReservation&) = delete;

  void keep() noexcept { guest_ = nullptr; }

 private:
  Guest* guest_;
};

}  // namespace hippogriff::noded
