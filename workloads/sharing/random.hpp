// Inputs from a seed, the same on every machine, and one number that stands for an answer.
#pragma once

#include <cstdint>
#include <string>

// SplitMix64: std's distributions differ between libraries, and inputs must not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31U);
  }

  // Less than `count`, which is not 0 and less than 2^32.
  std::uint32_t below(std::uint64_t count) {
    return static_cast<std::uint32_t>(((next() >> 32U) * count) >> 32U);
  }

  // In (0, 1].
  double uniform() { return static_cast<double>((next() >> 11U) + 1) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// FNV-1a over the numbers added, by their bytes from the least on.
class Checksum {
 public:
  void add(std::uint64_t number) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ = (value_ ^ ((number >> (8 * byte)) & 0xFFU)) * 0x100000001B3ULL;
    }
  }

  [[nodiscard]] std::string text() const {
    std::string digits(16, '0');
    for (int i = 0; i < 16; ++i) {
      digits[static_cast<std::size_t>(i)] = "0123456789abcdef"[(value_ >> (60 - 4 * i)) & 0xFU];
    }
    return digits;
  }

 private:
  std::uint64_t value_ = 0xCBF29CE484222325ULL;
};
