// XXH3's constants and arithmetic, and its formulas for up to 240 bytes: from its specification
// (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), 64 bits, seed 0. For the host and for CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HIPPO_HOST_DEVICE __host__ __device__ __forceinline__
#define HIPPO_UNROLL _Pragma("unroll")
#else
#define HIPPO_HOST_DEVICE inline
#define HIPPO_UNROLL
#endif

namespace hippogriff::xxh3 {

inline constexpr std::uint64_t prime32_1 = 0x9E3779B1;
inline constexpr std::uint64_t prime32_2 = 0x85EBCA77;
inline constexpr std::uint64_t prime32_3 = 0xC2B2AE3D;
inline constexpr std::uint64_t prime64_1 = 0x9E3779B185EBCA87;
inline constexpr std::uint64_t prime64_2 = 0xC2B2AE3D27D4EB4F;
inline constexpr std::uint64_t prime64_3 = 0x165667B19E3779F9;
inline constexpr std::uint64_t prime64_4 = 0x85EBCA77C2B2AE63;
inline constexpr std::uint64_t prime64_5 = 0x27D4EB2F165667C5;
inline constexpr std::uint64_t prime_mx1 = 0x165667919E3779F9;
inline constexpr std::uint64_t prime_mx2 = 0x9FB21C651E98DF25;

// The longest input that the formulas here are for.
inline constexpr std::uint64_t short_bytes_max = 240;

// The default secret, 192 bytes, as little-endian words.
struct Secret {
  std::uint64_t words[24];
};

inline constexpr Secret default_secret{
    {0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
     0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
     0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
     0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
     0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
     0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af}};

// The word that begins at any byte of the secret, up to byte 184.
HIPPO_HOST_DEVICE std::uint64_t secret_at(const Secret& secret, unsigned byte) {
  const unsigned shift = byte % 8 * 8;
  const std::uint64_t low = secret.words[byte / 8];
  return shift == 0 ? low : low >> shift | secret.words[byte / 8 + 1] << (64 - shift);
}

// The word at any address. On a GPU by aligned loads: the two words around it lie in the same
// 512 bytes as some byte that was asked for, so that they can be read.
HIPPO_HOST_DEVICE std::uint64_t read64(const std::uint8_t* address) {
#if defined(__CUDA_ARCH__)
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  const auto* words = reinterpret_cast<const std::uint64_t*>(number & ~std::uintptr_t{7});
  const unsigned shift = static_cast<unsigned>(number & 7) * 8;
  return shift == 0 ? words[0] : words[0] >> shift | words[1] << (64 - shift);
#else
  std::uint64_t word = 0;
  std::memcpy(&word, address, sizeof word);
  return word;
#endif
}

HIPPO_HOST_DEVICE std::uint64_t read32(const std::uint8_t* address) {
  return address[0] | std::uint64_t{address[1]} << 8 | std::uint64_t{address[2]} << 16 |
         std::uint64_t{address[3]} << 24;
}

// The two halves of the product of 128 bits, one xor the other.
HIPPO_HOST_DEVICE std::uint64_t multiply_fold(std::uint64_t left, std::uint64_t right) {
#if defined(__CUDA_ARCH__)
  return left * right ^ __umul64hi(left, right);
#else
  const auto product = static_cast<unsigned __int128>(left) * right;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
#endif
}

// std::rotl is for the host only.
HIPPO_HOST_DEVICE std::uint64_t rotate_left(std::uint64_t value, unsigned bits) {
  // NOLINTNEXTLINE(modernize-use-std-bit)
  return value << bits | value >> (64 - bits);
}

HIPPO_HOST_DEVICE std::uint64_t swap_bytes(std::uint64_t value) {
  value = (value & 0x00FF00FF00FF00FF) << 8 | (value >> 8 & 0x00FF00FF00FF00FF);
  value = (value & 0x0000FFFF0000FFFF) << 16 | (value >> 16 & 0x0000FFFF0000FFFF);
  return rotate_left(value, 32);
}

HIPPO_HOST_DEVICE std::uint64_t avalanche(std::uint64_t hash) {
  hash = (hash ^ hash >> 37) * prime_mx1;
  return hash ^ hash >> 32;
}

HIPPO_HOST_DEVICE std::uint64_t avalanche_xxh64(std::uint64_t hash) {
  hash = (hash ^ hash >> 33) * prime64_2;
  hash = (hash ^ hash >> 29) * prime64_3;
  return hash ^ hash >> 32;
}

// 16 bytes of input with 16 of the secret.
HIPPO_HOST_DEVICE std::uint64_t mix16(const std::uint8_t* input,
                                      const Secret& secret,
                                      unsigned byte) {
  return multiply_fold(read64(input) ^ secret_at(secret, byte),
                       read64(input + 8) ^ secret_at(secret, byte + 8));
}

HIPPO_HOST_DEVICE std::uint64_t hash_up_to_16(const std::uint8_t* input,
                                              std::uint64_t size,
                                              const Secret& secret) {
  if (size > 8) {
    const std::uint64_t low = read64(input) ^ secret_at(secret, 24) ^ secret_at(secret, 32);
    const std::uint64_t high =
        read64(input + size - 8) ^ secret_at(secret, 40) ^ secret_at(secret, 48);
    return avalanche(size + swap_bytes(low) + high + multiply_fold(low, high));
  }
  if (size >= 4) {
    std::uint64_t hash = (read32(input) << 32) + read32(input + size - 4);
    hash ^= secret_at(secret, 8) ^ secret_at(secret, 16);
    hash = (hash ^ rotate_left(hash, 49) ^ rotate_left(hash, 24)) * prime_mx2;
    hash = (hash ^ ((hash >> 35) + size)) * prime_mx2;
    return hash ^ hash >> 28;
  }
  if (size > 0) {
    const std::uint64_t joined = std::uint64_t{input[0]} << 16 |
                                 std::uint64_t{input[size >> 1]} << 24 | input[size - 1] |
                                 size << 8;
    const std::uint64_t key = secret.words[0];
    return avalanche_xxh64(joined ^ ((key ^ key >> 32) & 0xFFFFFFFF));
  }
  return avalanche_xxh64(secret_at(secret, 56) ^ secret_at(secret, 64));
}

HIPPO_HOST_DEVICE std::uint64_t hash_17_to_128(const std::uint8_t* input,
                                               std::uint64_t size,
                                               const Secret& secret) {
  std::uint64_t hash = size * prime64_1;
  const std::uint8_t* const end = input + size;
  for (unsigned pair = static_cast<unsigned>(size - 1) / 32 + 1; pair-- > 0;) {
    hash += mix16(input + std::size_t{16} * pair, secret, 32 * pair);
    hash += mix16(end - std::size_t{16} * (pair + 1), secret, 32 * pair + 16);
  }
  return avalanche(hash);
}

HIPPO_HOST_DEVICE std::uint64_t hash_129_to_240(const std::uint8_t* input,
                                                std::uint64_t size,
                                                const Secret& secret) {
  std::uint64_t hash = size * prime64_1;
  for (unsigned index = 0; index < 8; ++index) {
    hash += mix16(input + std::size_t{16} * index, secret, 16 * index);
  }
  hash = avalanche(hash);
  for (unsigned index = 8; index < size / 16; ++index) {
    hash += mix16(input + std::size_t{16} * index, secret, 16 * (index - 8) + 3);
  }
  return avalanche(hash + mix16(input + size - 16, secret, 136 - 17));
}

// At most short_bytes_max bytes.
HIPPO_HOST_DEVICE std::uint64_t hash_short(const std::uint8_t* input,
                                           std::uint64_t size,
                                           const Secret& secret) {
  if (size <= 16) {
    return hash_up_to_16(input, size, secret);
  }
  return size <= 128 ? hash_17_to_128(input, size, secret) : hash_129_to_240(input, size, secret);
}

}  // namespace hippogriff::xxh3
