// What a client shows on the segment without the lock: the memory it uses of each device. Those who
// follow a leader, such as the processes of one command, use its grants together.
#pragma once

#include "node/client_slot.hpp"
#include "node/segment.hpp"

#include <cstdint>
#include <string_view>

namespace hippogriff::node {

// What stands for a device's name on boards: never 0.
std::uint64_t device_key(std::string_view name) noexcept;

// Thread-safe; no call waits. Everything read was written by others: numbers may be wrong where
// another program wrote over them, never an index.
class Board {
 public:
  Board(const Segment& segment, const ClientSlot& slot);

  // False when there is no room for another device on the board.
  bool add_device(std::uint64_t key) noexcept;
  // What the reservations of this client come to: what its followers share.
  void set_granted(std::uint64_t key, std::uint64_t size_bytes) noexcept;
  // The same for the leader, after its reservation grew for a follower. Under the node's lock.
  void set_leaders_grant(std::uint64_t key, std::uint64_t size_bytes) noexcept;
  // What this client uses, for others to see. Not together with take and give.
  void set_used(std::uint64_t key, std::uint64_t size_bytes) noexcept;

  // After a removed file was replaced: takes over what this client uses, of which the present board
  // has what was carried over; `resumed` where that is its own slot's.
  void carry_on(std::uint64_t key, std::uint64_t used_bytes, bool resumed) noexcept;

  // Takes of the leader's grant for this client; false when more is not left. What dead followers
  // had is counted out first.
  bool take(std::uint64_t key, std::uint64_t size_bytes) noexcept;
  void give(std::uint64_t key, std::uint64_t size_bytes) noexcept;

  // Of the leader, which is the client itself where it follows nobody.
  [[nodiscard]] std::uint64_t granted(std::uint64_t key) const noexcept;
  [[nodiscard]] std::uint64_t group_used(std::uint64_t key) const noexcept;
  // Of any client.
  [[nodiscard]] std::uint64_t used(std::uint32_t client, std::uint64_t key) const noexcept;

 private:
  [[nodiscard]] DeviceUse* find(std::uint32_t client, std::uint64_t key) const noexcept;
  bool try_take(DeviceUse& group, std::uint64_t size_bytes) const noexcept;
  bool count_dead_out(std::uint64_t key) const noexcept;

  const Segment& segment_;
  const ClientSlot& slot_;
};

// For who takes over the slot of a dead client: counts what that one used out of its leader's
// group, and wipes the board.
void clear_board(const Segment& segment,
                 std::uint32_t client,
                 const ClientIdentity& former) noexcept;

}  // namespace hippogriff::node
