// What one user of a group's server may have, so that the others find room beside him.
#pragma once

#include "node/node.hpp"

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace hippogriff::noded {

// What a user may have of `all`, of which all users together have `now`: a part at most, and no
// more than are free. However many are greedy, each leaves as much as he has to the next.
std::uint32_t guest_share(std::uint32_t part_max, std::uint32_t all, std::uint32_t now) noexcept;

// Of the server's clients.
inline constexpr std::uint32_t clients_part = 4;
// Of the books' reservations, granted and waiting.
inline constexpr std::uint32_t guest_reservations_max = node::reservations_max / 4;
// Of the books' devices, for such as NVML does not know.
inline constexpr std::uint32_t guest_devices_max = node::devices_max / 2;

std::uint32_t guest_clients_max(std::uint32_t clients_max, std::uint32_t clients_now) noexcept;

// What all users of a server have together. Thread-safe.
struct GuestTotals {
  std::mutex mutex;
  std::uint32_t reservations = 0;
};

// A user over all his connections. Thread-safe.
class Guest {
 public:
  // One who `decides` is believed what he says about others, and chooses the policy.
  Guest(uid_t uid, bool decides, std::shared_ptr<GuestTotals> totals)
      : uid_(uid), decides_(decides), totals_(std::move(totals)) {}

  [[nodiscard]] bool decides() const noexcept { return decides_; }

  // Throws Error(busy) when he has all that he may have.
  void take_reservation();
  void give_reservations(std::uint32_t count) noexcept;

  // The size to enter in the books. A wrong one would mislead all others, and a name stays there:
  // NVML's counts where it knows the device, to which CUDA gives a little less, else that of those
  // who have reservations of it. Throws Error: invalid_argument for another, busy for one more name
  // than he may give: some stay free, and one for each GPU that NVML knows.
  std::uint64_t check_device(node::NodeClient& node,
                             std::string_view name,
                             std::uint64_t capacity_bytes);
  // Throws Error(unsupported) where he does not decide.
  void check_policy() const;

 private:
  const uid_t uid_;
  const bool decides_;
  const std::shared_ptr<GuestTotals> totals_;
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
