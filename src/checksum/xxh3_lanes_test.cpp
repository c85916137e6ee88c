// The kernel's algorithm, run on the host, and the loop for AVX-512, beside the xxHash library.
#include "checksum/xxh3_host.hpp"
#include "checksum/xxh3_lane_loop.hpp"
#include "checksum/xxh3_wide.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <vector>

namespace hippogriff {
namespace {

// Room around the bytes: the lanes read whole words.
std::vector<std::uint8_t> random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(size + 16);
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  return bytes;
}

// What hashes in pieces is the library, whatever the processor has.
std::uint64_t by_library(const std::uint8_t* input, std::size_t size) {
  Xxh3Stream stream;
  stream.update(input, size);
  return stream.digest();
}

TEST(Xxh3, of_nothing_is_what_its_specification_says) {
  EXPECT_EQ(xxh3_of(nullptr, 0), 0x2D06800538D394C2);
  EXPECT_EQ(xxh3::hash_by_lanes(nullptr, 0), 0x2D06800538D394C2);
}

TEST(Xxh3, lanes_agree_with_the_library_for_all_small_sizes_at_all_alignments) {
  constexpr std::size_t size_max = 4200;
  const auto bytes = random_bytes(size_max + 8, 1);
  for (std::size_t start = 0; start < 8; ++start) {
    for (std::size_t size = 0; size <= size_max; ++size) {
      const std::uint8_t* input = bytes.data() + start;
      const std::uint64_t expected = by_library(input, size);
      ASSERT_EQ(xxh3::hash_by_lanes(input, size), expected) << size << " bytes from " << start;
      ASSERT_EQ(xxh3_of(input, size), expected) << size << " bytes from " << start;
    }
  }
}

TEST(Xxh3, lanes_agree_with_the_library_for_random_large_sizes) {
  constexpr std::size_t size_max = 600'000;
  const auto bytes = random_bytes(size_max + 8, 2);
  std::mt19937_64 random(3);
  for (int round = 0; round < 100; ++round) {
    const std::size_t size = random() % size_max;
    const std::uint8_t* input = bytes.data() + random() % 8;
    const std::uint64_t expected = by_library(input, size);
    ASSERT_EQ(xxh3::hash_by_lanes(input, size), expected) << size << " bytes";
    ASSERT_EQ(xxh3_of(input, size), expected) << size << " bytes";
  }
}

// Memory ends before and behind the bytes.
TEST(Xxh3, nothing_beside_the_bytes_is_read) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t size_max = 2 * page_bytes;
  void* const all =
      mmap(nullptr, size_max + 2 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(all, MAP_FAILED);
  auto* const begin = static_cast<std::uint8_t*>(all) + page_bytes;
  ASSERT_EQ(mprotect(begin, size_max, PROT_READ | PROT_WRITE), 0);
  std::ranges::copy_n(random_bytes(size_max, 7).begin(), static_cast<long>(size_max), begin);
  for (std::size_t size = 1; size <= size_max; ++size) {
    const std::uint8_t* const last = begin + size_max - size;
    ASSERT_EQ(xxh3_of(begin, size), by_library(begin, size)) << size << " bytes";
    ASSERT_EQ(xxh3_of(last, size), by_library(last, size)) << size << " bytes";
  }
  munmap(all, size_max + 2 * page_bytes);
}

#if defined(__x86_64__)
TEST(Xxh3, wider_instructions_give_what_the_lanes_give) {
  constexpr std::size_t size_max = 300'000;
  const auto bytes = random_bytes(size_max + 8, 5);
  std::mt19937_64 random(6);
  const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0;
  if (!avx2 && !avx512) {
    GTEST_SKIP() << "this processor has neither AVX2 nor AVX-512F";
  }
  for (std::size_t round = 0; round < 2000; ++round) {
    const std::size_t size = round < 1800 ? round : random() % size_max;
    const std::uint8_t* input = bytes.data() + random() % 8;
    const std::uint64_t expected = xxh3::hash_by_lanes(input, size);
    ASSERT_TRUE(!avx2 || xxh3_avx2(input, size) == expected) << size << " bytes";
    ASSERT_TRUE(!avx512 || xxh3_avx512(input, size) == expected) << size << " bytes";
  }
}
#endif

TEST(Xxh3, stream_of_pieces_gives_what_the_whole_gives) {
  const auto bytes = random_bytes(100'000, 4);
  Xxh3Stream stream;
  for (int round = 0; round < 2; ++round) {
    stream.reset();
    for (std::size_t offset = 0, piece = 1; offset < bytes.size(); offset += piece++) {
      stream.update(bytes.data() + offset, std::min(piece, bytes.size() - offset));
    }
    EXPECT_EQ(stream.digest(), xxh3_of(bytes.data(), bytes.size()));
  }
}

}  // namespace
}  // namespace hippogriff
