// Header, devices, reservations, one after the other, without holes.
#include "node/books_image.hpp"

#include <cstring>

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): theirs
#include <xxhash.h>

namespace hippogriff::node {

namespace {

template <typename Record>
void put(std::vector<std::byte>& image, std::size_t& at, const std::vector<Record>& records) {
  const std::size_t size_bytes = records.size() * sizeof(Record);
  if (size_bytes != 0) {
    std::memcpy(image.data() + at, records.data(), size_bytes);
  }
  at += size_bytes;
}

template <typename Record>
void take(const std::vector<std::byte>& image, std::size_t& at, std::vector<Record>& records) {
  const std::size_t size_bytes = records.size() * sizeof(Record);
  if (size_bytes != 0) {
    std::memcpy(records.data(), image.data() + at, size_bytes);
  }
  at += size_bytes;
}

}  // namespace

std::uint64_t checksum_of(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

void encode_books(const Books& books, std::uint64_t sequence, std::vector<std::byte>& image) {
  ImageHeader header;
  header.sequence = sequence;
  header.generation = books.generation;
  header.next_number = books.next_number;
  header.policy = static_cast<std::uint32_t>(books.policy);
  header.overtakes_max = books.bound.grants_max;
  header.wait_ns_max = books.bound.wait_ns_max;
  header.device_count = static_cast<std::uint32_t>(books.devices.size());
  header.reservation_count = static_cast<std::uint32_t>(books.reservations.size());
  std::size_t at = sizeof(header);
  image.resize(at + books.devices.size() * sizeof(DeviceRecord) +
               books.reservations.size() * sizeof(ReservationRecord));
  put(image, at, books.devices);
  put(image, at, books.reservations);
  std::memcpy(image.data(), &header, sizeof(header));
  header.checksum = checksum_of(std::span(image).subspan(sizeof(header.checksum)));
  std::memcpy(image.data(), &header.checksum, sizeof(header.checksum));
}

bool decode_books(std::span<const std::byte> bytes,
                  std::vector<std::byte>& image,
                  std::uint64_t& sequence,
                  Books& books) {
  ImageHeader header;
  if (bytes.size() < sizeof(header)) {
    return false;
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.device_count > devices_max || header.reservation_count > reservations_max ||
      header.policy >= policy_count || header.wait_ns_max < 0) {
    return false;
  }
  const std::size_t size_bytes = sizeof(header) + header.device_count * sizeof(DeviceRecord) +
                                 header.reservation_count * sizeof(ReservationRecord);
  if (bytes.size() < size_bytes) {
    return false;
  }
  image.resize(size_bytes);
  std::memcpy(image.data(), &header, sizeof(header));
  std::memcpy(
      image.data() + sizeof(header), bytes.data() + sizeof(header), size_bytes - sizeof(header));
  if (header.checksum != checksum_of(std::span(image).subspan(sizeof(header.checksum)))) {
    return false;
  }
  sequence = header.sequence;
  unpack_books(image, books);
  return books.valid();
}

void unpack_books(const std::vector<std::byte>& image, Books& books) {
  ImageHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  books.generation = header.generation;
  books.next_number = header.next_number;
  books.policy = static_cast<Policy>(header.policy);
  books.bound = {.grants_max = header.overtakes_max, .wait_ns_max = header.wait_ns_max};
  books.devices.resize(header.device_count);
  books.reservations.resize(header.reservation_count);
  std::size_t at = sizeof(header);
  take(image, at, books.devices);
  take(image, at, books.reservations);
}

}  // namespace hippogriff::node
