// Bytes for tests, fast also where tests are not optimised and watched by a sanitizer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hippogriff {

inline constexpr std::uint64_t kibibyte = std::uint64_t{1} << 10;
inline constexpr std::uint64_t mebibyte = std::uint64_t{1} << 20;

// The same for the same seed.
std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed);

bool same_bytes(std::span<const std::byte> left, std::span<const std::byte> right);

}  // namespace hippogriff
