// The books as bytes in shared memory, checksummed, and the way back, which trusts no byte.
#pragma once

#include "node/books.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hippogriff::node {

struct ImageHeader {
  std::uint64_t checksum = 0;  // XXH3 of all that follows
  std::uint64_t sequence = 0;
  std::uint64_t generation = 0;
  std::uint64_t next_number = 0;
  std::uint32_t policy = 0;
  std::uint32_t overtakes_max = 0;
  std::int64_t wait_ns_max = 0;
  std::uint32_t device_count = 0;
  std::uint32_t reservation_count = 0;
  std::uint64_t unused = 0;
};

static_assert(sizeof(ImageHeader) == 64);
static_assert(sizeof(DeviceRecord) == 72);
static_assert(sizeof(ReservationRecord) == 72);

inline constexpr std::size_t image_bytes_max = sizeof(ImageHeader) +
                                               devices_max * sizeof(DeviceRecord) +
                                               reservations_max * sizeof(ReservationRecord);

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept;

// Replaces the contents of `image`.
void encode_books(const Books& books, std::uint64_t sequence, std::vector<std::byte>& image);

// Reads the books at the start of `bytes`, which others may be writing: each byte is fetched once,
// into `image`. False when anything is wrong; then `books` holds nothing of use.
bool decode_books(std::span<const std::byte> bytes,
                  std::vector<std::byte>& image,
                  std::uint64_t& sequence,
                  Books& books);

// Of an image of this process's own, which decode_books found right or encode_books made.
void unpack_books(const std::vector<std::byte>& image, Books& books);

}  // namespace hippogriff::node
