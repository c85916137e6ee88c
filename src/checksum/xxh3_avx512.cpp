// XXH3 with AVX-512, in a file of its own that the build compiles with -mavx512f: nothing of the
// C++ library, and no inline function of ours, may be here: the linker could take this copy of it
// for every processor.
#include "checksum/xxh3_wide.hpp"

#if defined(__x86_64__)

#if !defined(__AVX512F__)
#error "compile this file with -mavx512f"
#endif

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12's own AVX-512 functions begin with registers that nobody set, and it warns of them.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "checksum/xxh3_arithmetic.hpp"

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): theirs
#include <immintrin.h>
#include <xxhash.h>

namespace hippogriff {
namespace {

constexpr std::size_t stripe_bytes = 64;
constexpr std::size_t round_stripes = 16;
constexpr std::size_t round_bytes = stripe_bytes * round_stripes;

// Once, into a register: GCC would have each use of the words read memory again, which costs twice
// where they lie across cache lines.
__m512i load(const std::byte* bytes) {
  __m512i words = _mm512_loadu_si512(bytes);
  asm("" : "+v"(words));
  return words;
}

// The secret's words from some byte on.
__m512i key_at(std::size_t byte) {
  return load(reinterpret_cast<const std::byte*>(xxh3::default_secret.words) + byte);
}

// What some stripes add to the eight accumulators: to their own, and to their neighbours'. It does
// not depend on them, so that the words change places once a round.
struct Gain {
  __m512i own = _mm512_setzero_si512();
  __m512i lent = _mm512_setzero_si512();

  void take(__m512i words, __m512i key) {
    const __m512i keyed = words ^ key;
    own = _mm512_add_epi64(own, _mm512_mul_epu32(keyed, _mm512_srli_epi64(keyed, 32)));
    lent = _mm512_add_epi64(lent, words);
  }

  [[nodiscard]] __m512i total() const {
    return _mm512_add_epi64(own, _mm512_shuffle_epi32(lent, _MM_PERM_BADC));
  }
};

__m512i scramble(__m512i sums, __m512i key) {
  const __m512i prime = _mm512_set1_epi64(xxh3::prime32_1);
  const __m512i mixed = sums ^ _mm512_srli_epi64(sums, 47) ^ key;
  const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(mixed, 32), prime);
  return _mm512_add_epi64(_mm512_mul_epu32(mixed, prime), _mm512_slli_epi64(high, 32));
}

// All whole rounds; the keys are loaded once, and most of them stay in registers.
__m512i sum_rounds(const std::byte* input, std::size_t rounds) {
  __m512i keys[round_stripes];
  for (std::size_t stripe = 0; stripe < round_stripes; ++stripe) {
    keys[stripe] = key_at(8 * stripe);
  }
  const __m512i scramble_key = key_at(8 * round_stripes);
  alignas(64) static constexpr std::uint64_t first[] = {xxh3::prime32_3,
                                                        xxh3::prime64_1,
                                                        xxh3::prime64_2,
                                                        xxh3::prime64_3,
                                                        xxh3::prime64_4,
                                                        xxh3::prime32_2,
                                                        xxh3::prime64_5,
                                                        xxh3::prime32_1};
  __m512i sums = _mm512_load_si512(first);
  for (const std::byte* const end = input + rounds * round_bytes; input != end;
       input += round_bytes) {
    Gain gain;
#pragma GCC unroll 16
    for (std::size_t stripe = 0; stripe < round_stripes; ++stripe) {
      const std::byte* const words = input + stripe * stripe_bytes;
      _mm_prefetch(words + round_bytes, _MM_HINT_T0);
      gain.take(load(words), keys[stripe]);
    }
    sums = scramble(_mm512_add_epi64(sums, gain.total()), scramble_key);
  }
  return sums;
}

std::uint64_t multiply_fold(std::uint64_t left, std::uint64_t right) {
  const auto product = static_cast<unsigned __int128>(left) * right;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t xxh3_avx512(const void* data, std::size_t size_bytes) noexcept {
  if (size_bytes <= xxh3::short_bytes_max) {
    return XXH3_64bits(data, size_bytes);
  }
  const auto* const input = static_cast<const std::byte*>(data);
  const std::size_t rounds = (size_bytes - 1) / round_bytes;
  const __m512i sums = sum_rounds(input, rounds);
  Gain rest;
  for (std::size_t done = rounds * round_bytes, key = 0; done + stripe_bytes < size_bytes;
       done += stripe_bytes, key += 8) {
    rest.take(load(input + done), key_at(key));
  }
  rest.take(load(input + size_bytes - stripe_bytes), key_at(121));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(words, _mm512_add_epi64(sums, rest.total()) ^ key_at(11));
  std::uint64_t hash = size_bytes * xxh3::prime64_1;
  for (std::size_t index = 0; index < 8; index += 2) {
    hash += multiply_fold(words[index], words[index + 1]);
  }
  hash = (hash ^ hash >> 37) * xxh3::prime_mx1;
  return hash ^ hash >> 32;
}

}  // namespace hippogriff

#endif  // __x86_64__
