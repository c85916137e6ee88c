// Host memory for data that waits for its device (or, on the way back, for its disk): bounded,
// pinned where the machine allows it, given back as soon as a piece has moved on. (Hippogriff
// III.B.)
#pragma once

#include "device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace hippogriff {

// Thread-safe. Pieces must come back before the parking is destroyed.
class Parking {
 public:
  static constexpr std::size_t piece_bytes = std::size_t{4} << 20;

  Parking(Device& device, std::uint64_t budget_bytes);
  ~Parking();
  Parking(const Parking&) = delete;
  Parking& operator=(const Parking&) = delete;

  // A piece of piece_bytes, or nullptr when the budget is used up (never waits).
  // Throws Error(out_of_host_memory) when the system has none although the budget does.
  [[nodiscard]] std::byte* acquire();
  // `no` when the device may still use the piece: its memory is then never reused.
  enum class Reuse : std::uint8_t { yes, no };
  void release(std::byte* piece, Reuse reuse = Reuse::yes) noexcept;

  // Memory of others that counts as used, though it may be more than there is room for, until it is
  // given back.
  void count(std::uint64_t bytes) noexcept;
  void give_back(std::uint64_t bytes) noexcept;

  [[nodiscard]] std::uint64_t used_bytes() const;

  [[nodiscard]] std::uint64_t budget_bytes() const { return budget_bytes_; }

 private:
  static constexpr std::size_t kept_pieces_max = 8;

  Device& device_;
  const std::uint64_t budget_bytes_;
  mutable std::mutex mutex_;
  std::uint64_t used_bytes_ = 0;
  std::vector<std::byte*> kept_;  // a few stay pinned for the next transfer
};

}  // namespace hippogriff
