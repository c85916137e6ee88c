// Books to bytes and back, and every kind of byte that must not pass.
#include "node/books_image.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace hippogriff::node {
namespace {

Books sample() {
  Books books;
  books.generation = 7;
  books.policy = Policy::aging_mmu;
  DeviceRecord device;
  std::memcpy(device.name.data(), "GPU-1", 5);
  device.capacity_bytes = 1000;
  books.devices.push_back(device);
  for (std::uint64_t size = 1; size <= 3; ++size) {
    ReservationRecord record;
    record.wanted_bytes = size * 100;
    record.size_bytes = size == 2 ? 0 : record.wanted_bytes;
    record.client = static_cast<std::uint32_t>(size);
    books.append(record);
  }
  return books;
}

bool decodes(const Books& books) {
  std::vector<std::byte> image;
  std::vector<std::byte> scratch;
  encode_books(books, 5, image);
  std::uint64_t sequence = 0;
  Books read;
  return decode_books(image, scratch, sequence, read) && sequence == 5;
}

TEST(BooksImage, reads_back_what_was_written) {
  const Books books = sample();
  std::vector<std::byte> image;
  std::vector<std::byte> scratch;
  encode_books(books, 5, image);
  std::uint64_t sequence = 0;
  Books read;
  ASSERT_TRUE(decode_books(image, scratch, sequence, read));
  EXPECT_EQ(sequence, 5U);
  EXPECT_EQ(read.generation, 7U);
  EXPECT_EQ(read.policy, Policy::aging_mmu);
  EXPECT_EQ(read.next_number, 4U);
  std::vector<std::byte> again;
  encode_books(read, 5, again);
  EXPECT_EQ(image, again);
}

TEST(BooksImage, refuses_every_flipped_bit_and_every_shorter_span) {
  std::vector<std::byte> image;
  std::vector<std::byte> scratch;
  encode_books(sample(), 5, image);
  std::uint64_t sequence = 0;
  Books read;
  for (std::size_t bit = 0; bit < image.size() * 8; ++bit) {
    image[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_books(image, scratch, sequence, read)) << bit;
    image[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (std::size_t size = 0; size < image.size(); ++size) {
    EXPECT_FALSE(decode_books(std::span(image).first(size), scratch, sequence, read)) << size;
  }
}

TEST(BooksImage, takes_the_largest_books) {
  Books books = sample();
  books.reservations.clear();
  for (std::uint32_t count = 0; count < reservations_max; ++count) {
    ReservationRecord record;
    record.wanted_bytes = 1;
    books.append(record);
  }
  books.devices.clear();
  for (std::uint32_t count = 0; count < devices_max; ++count) {
    DeviceRecord device;
    device.name[0] = static_cast<char>('A' + count);
    device.capacity_bytes = capacity_bytes_max;
    books.devices.push_back(device);
  }
  EXPECT_TRUE(decodes(books));
  std::vector<std::byte> image;
  encode_books(books, 1, image);
  EXPECT_EQ(image.size(), image_bytes_max);
}

// Checksums are right here: somebody of the same user may write what they like.
TEST(BooksImage, refuses_well_formed_nonsense) {
  const auto refused = [](auto spoil) {
    Books books = sample();
    spoil(books);
    return !decodes(books);
  };
  EXPECT_FALSE(refused([](Books&) {}));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].device = 1; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].client = clients_max; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].id = b.reservations[0].id; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[0].id = 0; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[2].id = b.next_number; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[2].ticket = b.next_number; }));
  EXPECT_TRUE(refused([](Books& b) { b.next_number = UINT64_MAX; })) << "the next id would be 0";
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].wanted_bytes = 1001; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].wanted_bytes = 0; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].size_bytes = 201; }));
  EXPECT_FALSE(refused([](Books& b) { b.reservations[1].deferred = 1; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[1].deferred = 2; }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[0].deferred = 1; })) << "it holds memory";
  EXPECT_TRUE(refused([](Books& b) {
    b.reservations[1].deferred = 1;
    b.reservations[1].grower = 1;
  }));
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].capacity_bytes = capacity_bytes_max + 1; }));
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].outside_bytes = capacity_bytes_max + 1; }));
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].context_bytes = 1001; }));
  EXPECT_FALSE(refused([](Books& b) {
    b.reservations[1].size_bytes = 0;
    b.reservations[1].kept_bytes = b.reservations[1].wanted_bytes;
  }));
  EXPECT_TRUE(refused([](Books& b) {
    b.reservations[1].size_bytes = 0;
    b.reservations[1].kept_bytes = b.reservations[1].wanted_bytes + 1;
  }));
  EXPECT_TRUE(refused([](Books& b) { b.reservations[0].kept_bytes = 1; })) << "it holds memory";
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].name.fill('x'); }));
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].name.fill('\0'); }));
  EXPECT_TRUE(refused([](Books& b) { b.devices[0].name[1] = '\n'; }));
  EXPECT_TRUE(refused([](Books& b) { b.devices.push_back(b.devices[0]); }));
  EXPECT_TRUE(refused([](Books& b) { b.policy = static_cast<Policy>(policy_count); }));
  EXPECT_TRUE(refused([](Books& b) { b.bound.wait_ns_max = -1; }));
}

}  // namespace
}  // namespace hippogriff::node
