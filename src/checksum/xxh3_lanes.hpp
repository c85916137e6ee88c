// XXH3 of more than 240 bytes by eight lanes that work side by side: threads of a GPU, or a loop.
// What a round of 1024 bytes adds to the accumulators does not depend on them, so that teams of
// eight lanes take a round each at the same time; only scrambling goes round by round.
#pragma once

#include "checksum/xxh3_arithmetic.hpp"

namespace hippogriff::xxh3 {

inline constexpr unsigned lane_count = 8;
inline constexpr unsigned team_count = 4;     // a warp of lanes
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

// One lane of one team: every eighth word of each of its rounds.
struct Lane {
  std::uint64_t sum;                   // the accumulator, the same in all teams
  std::uint64_t gain;                  // what this team's round adds to it
  std::uint64_t lent;                  // what it adds to the neighbour's
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
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    lane.keys[stripe] = secret.words[stripe + index];
  }
  lane.scramble_key = secret.words[round_stripes + index];
}

HIPPO_HOST_DEVICE void take(Lane& lane, std::uint64_t word, std::uint64_t key) {
  const std::uint64_t keyed = word ^ key;
  lane.gain += (keyed & 0xFFFFFFFF) * (keyed >> 32);
  lane.lent += word;
}

template <typename Input>
HIPPO_HOST_DEVICE void fetch(Lane& lane, unsigned index, const Input& input, std::uint64_t round) {
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    lane.ahead[stripe] = input.at((round * round_stripes + stripe) * lane_count + index);
  }
}

// A team's round, if there is one; the words of its next are asked for before those of this one
// are used.
template <typename Input>
HIPPO_HOST_DEVICE void take_round(
    Lane& lane, unsigned index, const Input& input, std::uint64_t round, std::uint64_t rounds) {
  lane.gain = lane.lent = 0;
  if (round >= rounds) {
    return;
  }
  std::uint64_t now[round_stripes];
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    now[stripe] = lane.ahead[stripe];
  }
  if (round + team_count < rounds) {
    fetch(lane, index, input, round + team_count);
  }
  HIPPO_UNROLL
  for (unsigned stripe = 0; stripe < round_stripes; ++stripe) {
    take(lane, now[stripe], lane.keys[stripe]);
  }
}

// The end of a round that adds `gain`.
HIPPO_HOST_DEVICE void settle(Lane& lane, std::uint64_t gain) {
  const std::uint64_t sum = lane.sum + gain;
  lane.sum = (sum ^ sum >> 47 ^ lane.scramble_key) * prime32_1;
}

// What is left after the rounds, which every team takes: whole stripes.
template <typename Input>
HIPPO_HOST_DEVICE void take_rest(
    Lane& lane, unsigned index, const Input& input, std::uint64_t size, std::uint64_t rounds) {
  lane.gain = lane.lent = 0;
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

// More than short_bytes_max bytes at `input`. `lanes` is what LaneLoop is: a lane in each thread,
// or all of them in one.
template <bool Aligned, typename Lanes>
HIPPO_HOST_DEVICE std::uint64_t hash_long(Lanes& lanes,
                                          const std::uint8_t* input,
                                          std::uint64_t size,
                                          const Secret& secret) {
  const Words<Aligned> words(input);
  const std::uint64_t rounds = (size - 1) / round_bytes;
  lanes.each([&](Lane& lane, unsigned index, unsigned team) {
    start(lane, index, secret);
    if (team < rounds) {
      fetch(lane, index, words, team);
    }
  });
  for (std::uint64_t round = 0; round < rounds; round += team_count) {
    lanes.each([&](Lane& lane, unsigned index, unsigned team) {
      take_round(lane, index, words, round + team, rounds);
    });
    lanes.exchange();
    lanes.settle(rounds - round);
  }
  lanes.each([&](Lane& lane, unsigned index, unsigned) {
    take_rest(lane, index, words, size, rounds);
    take(lane,
         read64(input + size - stripe_bytes + std::size_t{8} * index),
         secret_at(secret, 121 + 8 * index));
  });
  lanes.exchange();
  lanes.each([&](Lane& lane, unsigned index, unsigned) {
    lane.sum = (lane.sum + lane.gain) ^ secret_at(secret, 11 + 8 * index);
  });
  return avalanche(lanes.fold_pairs() + size * prime64_1);
}

}  // namespace hippogriff::xxh3
