// How much a random test does.
#pragma once

namespace hippogriff {

// Rounds of a random test: a quarter where a sanitizer makes each take ten times as long.
constexpr int rounds_of(int plain) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return (plain + 3) / 4;
#else
  return plain;
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return (plain + 3) / 4;
#else
  return plain;
#endif
}

// ThreadSanitizer calls a race what is one by design.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif
#elif defined(__SANITIZE_THREAD__)
inline constexpr bool thread_sanitized = true;
#else
inline constexpr bool thread_sanitized = false;
#endif

}  // namespace hippogriff
