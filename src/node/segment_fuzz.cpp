// Any bytes as an image of the books, with the checksum made right so that the fuzzer gets past it:
// they are refused, or are books that every policy can serve and that come back as they were.
#include "base/error.hpp"
#include "node/books_image.hpp"
#include "node/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace {

using hippogriff::node::Books;

void check_served(Books books, std::uint32_t policy) {
  books.policy = static_cast<hippogriff::node::Policy>(policy);
  for (std::uint32_t device = 0; device < books.devices.size(); ++device) {
    const std::uint64_t held = books.held_bytes(device);
    const std::uint64_t promised = held + books.kept_bytes(device);
    hippogriff::node::ClientSet granted;
    hippogriff::node::serve(books, device, std::int64_t{1} << 40U, granted);
    // Nothing more is promised that is not there: what a repair promised too much stays as it is,
    // and so does what is kept, whose owner may come to hold it.
    const std::uint64_t now = books.held_bytes(device) + books.kept_bytes(device);
    const auto& record = books.devices[device];
    HIPPO_ASSERT(now == promised || now + record.outside_bytes <= record.capacity_bytes);
    HIPPO_ASSERT(now >= promised && books.held_bytes(device) >= held);
  }
  if (!books.reservations.empty()) {
    const auto& first = books.reservations.front();
    HIPPO_ASSERT(!books.growth_is_stuck(first.id) ||
                 std::ranges::any_of(books.reservations, [&](const auto& other) {
                   return other.client == first.client && other.waits();
                 }));
  }
  HIPPO_ASSERT(books.valid());
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  std::vector<std::byte> bytes(size_bytes);
  if (size_bytes != 0) {
    std::memcpy(bytes.data(), data, size_bytes);
  }
  std::vector<std::byte> image;
  std::uint64_t sequence = 0;
  Books books;
  if (!hippogriff::node::decode_books(bytes, image, sequence, books) && image.size() >= 8) {
    const std::uint64_t checksum = hippogriff::node::checksum_of(std::span(image).subspan(8));
    std::memcpy(bytes.data(), &checksum, sizeof(checksum));
  }
  if (!hippogriff::node::decode_books(bytes, image, sequence, books)) {
    return 0;
  }
  std::vector<std::byte> again;
  hippogriff::node::encode_books(books, sequence, again);
  std::uint64_t sequence_again = 0;
  Books same;
  HIPPO_ASSERT(hippogriff::node::decode_books(again, image, sequence_again, same));
  HIPPO_ASSERT(sequence_again == sequence && same.reservations.size() == books.reservations.size());
  for (std::uint32_t policy = 0; policy < hippogriff::node::policy_count; ++policy) {
    check_served(books, policy);
  }
  return 0;
}
