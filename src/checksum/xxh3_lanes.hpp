// XXH3 of more than 240 bytes by eight lanes that work side by side: threads of a GPU, or a loop.
// Lanes need each other's words only where an accumulator is scrambled, once in 1024 bytes.
#pragma once

#include "checksum/xxh3_arithmetic.hpp"

namespace hippogriff::xxh3 {

inline constexpr unsigned lane_count = 8;
inline constexpr unsigned stripe_bytes = 64;  // a word for each lane
inline constexpr unsigned round_stripes = 16;
inline constexpr unsigned round_bytes = stripe_bytes * round_stripes;

// The input as words of aligned memory: nothing is read but words that hold some of its bytes.
template <bool Aligned>
struct Words {
  const std::uint64_t* words;
  unsigned shift_bits;  // of the first byte in its word; 0 when it is aligned

  explicit HIPPO_HOST_DEVICE Words(const std::uint8_t* input)
      : words(reinterpret_cast<const std::uint64_t*>(reinterpret_cast<std::uintptr_t>(input) &
                                                     ~std::uintptr_t{7})),
        shift_bits(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(input) & 7) * 8) {}

  [[nodiscard]] HIPPO_HOST_DEVICE std::uint64_t at(std::uint64_t index) const {
    if constexpr (Aligned) {
      return load(words + index);
    }
    return load(words + index) >> shift_bits | load(words + index + 1) << (64 - shift_bits);
  }

 private:
  static HIPPO_HOST_DEVICE std::uint64_t load(const std::uint64_t* word) {
#if defined(__CUDA_ARCH__)
    return __ldg(word);
#else
    std::uint64_t value = 0;
    std::memcpy(&value, word, sizeof value);
    return value;
#endif
  }
};

// One lane: every eighth word of the input.
struct Lane {
  std::uint64_t sum;                   // the accumulator
  std::uint64_t lent;                  // what the neighbour's accumulator gets at the next exchange
  std::uint64_t keys[round_stripes];   // the secret's words for the stripes of a round
  std::uint64_t scramble_key;          // and for its end
  std::uint64_t ahead[round_stripes];  // words of the round to come, on their way from memory
};

HIPPO_HOST_DEVICE std::uint64_t first_sum(unsigned lane) {
  switch (lane) {
    case 0:
      return prime32_3;
    case 1:
      return prime64_1;
    case 2:
      return prime64_2;
    case 3:
      return prime64_3;
    case 4:
      return prime64_4;
    case 5:
      return prime32_2;
    case 6:
      return prime64_5;
    default:
      return prime32_1;
  }
}

HIPPO_HOST_DEVICE void start(Lane& lane, unsigned index, const Secret& secret) {
  lane.sum = first_sum(index);
  lane.lent = 0;
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    lane.keys[stripe] = secret.words[stripe + index];
  }
  lane.scramble_key = secret.words[round_stripes + index];
}

HIPPO_HOST_DEVICE void take(Lane& lane, std::uint64_t word, std::uint64_t key) {
  const std::uint64_t keyed = word ^ key;
  lane.sum += (keyed & 0xFFFFFFFF) * (keyed >> 32);
  lane.lent += word;
}

template <typename Input>
HIPPO_HOST_DEVICE void fetch(Lane& lane, unsigned index, const Input& input, std::uint64_t round) {
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    lane.ahead[stripe] = input.at((round * round_stripes + stripe) * lane_count + index);
  }
}

// A whole round; the words of the next are asked for before those of this one are used.
template <typename Input>
HIPPO_HOST_DEVICE void take_round(
    Lane& lane, unsigned index, const Input& input, std::uint64_t round, std::uint64_t rounds) {
  std::uint64_t now[round_stripes];
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    now[stripe] = lane.ahead[stripe];
  }
  if (round + 1 < rounds) {
    fetch(lane, index, input, round + 1);
  }
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    take(lane, now[stripe], lane.keys[stripe]);
  }
}

HIPPO_HOST_DEVICE void scramble(Lane& lane) {
  lane.sum = (lane.sum ^ lane.sum >> 47 ^ lane.scramble_key) * prime32_1;
}

// What is left after the rounds: whole stripes, and the last 64 bytes.
template <typename Input>
HIPPO_HOST_DEVICE void take_rest(
    Lane& lane, unsigned index, const Input& input, std::uint64_t size, std::uint64_t rounds) {
  const auto stripes = static_cast<unsigned>((size - 1 - rounds * round_bytes) / stripe_bytes);
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    if (stripe < stripes) {
      take(lane,
           input.at((rounds * round_stripes + stripe) * lane_count + index),
           lane.keys[stripe]);
    }
  }
}

// More than short_bytes_max bytes at `input`. `lanes` is what LaneLoop is: a lane in
// each thread, or all of them in one.
template <bool Aligned, typename Lanes>
HIPPO_HOST_DEVICE std::uint64_t hash_long(Lanes& lanes,
                                          const std::uint8_t* input,
                                          std::uint64_t size,
                                          const Secret& secret) {
  const Words<Aligned> words(input);
  const std::uint64_t rounds = (size - 1) / round_bytes;
  lanes.each([&](Lane& lane, unsigned index) {
    start(lane, index, secret);
    if (rounds > 0) {
      fetch(lane, index, words, 0);
    }
  });
  for (std::uint64_t round = 0; round < rounds; ++round) {
    lanes.each([&](Lane& lane, unsigned index) { take_round(lane, index, words, round, rounds); });
    lanes.exchange();
    lanes.each([](Lane& lane, unsigned) { scramble(lane); });
  }
  lanes.each([&](Lane& lane, unsigned index) {
    take_rest(lane, index, words, size, rounds);
    take(lane,
         read64(input + size - stripe_bytes + std::size_t{8} * index),
         secret_at(secret, 121 + 8 * index));
  });
  lanes.exchange();
  lanes.each([&](Lane& lane, unsigned index) { lane.sum ^= secret_at(secret, 11 + 8 * index); });
  return avalanche(lanes.fold_pairs() + size * prime64_1);
}

}  // namespace hippogriff::xxh3
