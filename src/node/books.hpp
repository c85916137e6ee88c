// The books of a node: which devices there are, who holds how much of them, and who waits. Plain
// data and its rules; where it is stored and who may change it is not known here.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace hippogriff::node {

inline constexpr std::uint32_t devices_max = 16;
inline constexpr std::uint32_t clients_max = 256;
inline constexpr std::uint32_t reservations_max = 1024;
// Of ids and tickets: far from where the next one would wrap.
inline constexpr std::uint64_t numbers_max = UINT64_MAX / 2;
inline constexpr std::uint64_t capacity_bytes_max = std::uint64_t{1} << 50U;

enum class Policy : std::uint32_t { fifo, mmu, priority_fifo, priority_mmu, aging_mmu };
inline constexpr std::uint32_t policy_count = 5;

// aging_mmu: how often, and up to which age, a waiting request may be overtaken.
struct OvertakeBound {
  std::uint32_t grants_max = 16;
  std::int64_t wait_ns_max = 30'000'000'000;

  friend bool operator==(const OvertakeBound&, const OvertakeBound&) = default;
};

// Names end with a zero and are unique. What programs that do not take part use is `outside_bytes`,
// and `context_bytes` what a context was seen to take (outside.cpp); 0 while none was.
struct DeviceRecord {
  std::array<char, 48> name{};
  std::uint64_t capacity_bytes = 0;
  std::uint64_t outside_bytes = 0;
  std::uint64_t context_bytes = 0;

  [[nodiscard]] std::string_view name_view() const;
};

// It holds `size_bytes`, and waits while it wants more. Tickets order those who wait. A deferred
// one holds nothing and waits for nothing until a follower of its client claims it. While one holds
// nothing, `kept_bytes` of what it wants are promised to nobody else: contexts take them already.
struct ReservationRecord {
  std::uint64_t id = 0;
  std::uint64_t ticket = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t wanted_bytes = 0;
  std::uint64_t kept_bytes = 0;
  std::int64_t since_ns = 0;  // of monotonic_ns, when it began to wait
  std::uint32_t device = 0;   // index into Books::devices
  std::uint32_t client = 0;   // slot
  std::int32_t priority = 0;  // larger is sooner
  std::uint32_t overtaken = 0;
  std::uint32_t grower = 0;  // slot and 1 of the follower that waits for it; 0: its client
  std::uint32_t deferred = 0;

  [[nodiscard]] bool waits() const { return wanted_bytes > size_bytes && deferred == 0; }

  [[nodiscard]] bool grows() const { return waits() && size_bytes != 0; }

  // Left for its first use and not there yet: deferred, or claimed and waiting.
  [[nodiscard]] bool unclaimed() const { return size_bytes == 0 && (deferred != 0 || grower != 0); }

  // Waits, and holds nothing.
  [[nodiscard]] bool is_new() const { return waits() && size_bytes == 0; }

  [[nodiscard]] std::uint64_t missing_bytes() const {
    return wanted_bytes - size_bytes - kept_bytes;
  }

  // All that it wants is its own now.
  void grant() {
    size_bytes = wanted_bytes;
    kept_bytes = 0;
  }

  // Takes back what a follower waits for: growth, or all of it, which is then deferred again.
  void take_back_wish();
};

using ClientSet = std::bitset<clients_max>;

inline constexpr std::uint32_t no_device = UINT32_MAX;

// Reservations ascend by id. Not thread-safe.
struct Books {
  std::uint64_t generation = 0;   // changes when the books had to be repaired
  std::uint64_t next_number = 1;  // ids and tickets
  Policy policy = Policy::fifo;
  OvertakeBound bound;
  std::vector<DeviceRecord> devices;
  std::vector<ReservationRecord> reservations;

  // Every index within its table, every size within its device, names and ids unique.
  [[nodiscard]] bool valid() const;
  [[nodiscard]] std::uint32_t find_device(std::string_view name) const;
  [[nodiscard]] std::uint64_t held_bytes(std::uint32_t device) const;
  [[nodiscard]] std::uint64_t kept_bytes(std::uint32_t device) const;
  // What a reservation that holds nothing shall keep, of which so much is in use.
  [[nodiscard]] std::uint64_t to_keep(const ReservationRecord& record,
                                      std::uint64_t used_bytes) const;
  // 0 where more is held than there is, which a repair can bring about.
  [[nodiscard]] std::uint64_t free_bytes(std::uint32_t device) const;
  ReservationRecord* find(std::uint64_t id);

  // The same for one id after the other: quick where they come as the reservations do. `next` is 0
  // at first, and then where the one behind the last that was found stands.
  ReservationRecord* find_in_order(std::uint64_t id, std::size_t& next) {
    ReservationRecord* found =
        next < reservations.size() && reservations[next].id == id ? &reservations[next] : find(id);
    next = found != nullptr ? static_cast<std::size_t>(found - reservations.data()) + 1 : next;
    return found;
  }

  // Appends a copy that waits at the end of the queue; returns its id.
  std::uint64_t append(ReservationRecord record);
  void insert_with_id(const ReservationRecord& record);
  void erase(std::uint64_t id);
  // True when any was there.
  bool erase_client(std::uint32_t client);
  // True when this reservation can never grow, though all that hold memory and do not wait end: it
  // waits for some who wait for memory that it holds itself, on whichever devices.
  [[nodiscard]] bool growth_is_stuck(std::uint64_t id) const;
};

// The name as a record keeps it: shorter than its array, of printable characters.
bool device_name_valid(std::string_view name);

}  // namespace hippogriff::node
