// How much a random test does.
#pragma once

namespace hippogriff {

// Tests of races that are there by design leave those to builds without it.
#if defined(__has_feature)
inline constexpr bool thread_sanitized = __has_feature(thread_sanitizer);
inline constexpr bool address_sanitized = __has_feature(address_sanitizer);
#else
#if defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool address_sanitized = true;
#else
inline constexpr bool address_sanitized = false;
#endif
#endif

// Rounds of a random test: a quarter where a sanitizer makes each take ten times as long.
constexpr int rounds_of(int plain) {
  return thread_sanitized || address_sanitized ? (plain + 3) / 4 : plain;
}

}  // namespace hippogriff
