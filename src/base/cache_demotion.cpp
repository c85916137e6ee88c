// CLDEMOTE by its bytes: compilers offer it only to code that is for processors with it alone.
#include "base/cache_demotion.hpp"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hippogriff {

#if defined(__x86_64__)

namespace {

bool has_cldemote() noexcept {
  constexpr unsigned features = 7;
  constexpr unsigned cldemote = 25;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(features, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> cldemote & 1U) != 0;
}

}  // namespace

void demote_from_own_caches(std::span<const std::byte> written) noexcept {
  static const bool can = has_cldemote();
  if (!can) {
    return;
  }
  constexpr std::uintptr_t line_bytes = 64;
  const auto begin = reinterpret_cast<std::uintptr_t>(written.data());
  for (std::uintptr_t at = begin & ~(line_bytes - 1); at < begin + written.size();
       at += line_bytes) {
    asm volatile(".byte 0x0f, 0x1c, 0x00" : : "a"(at) : "memory");  // cldemote (%rax)
  }
}

#else

void demote_from_own_caches(std::span<const std::byte>) noexcept {}

#endif

}  // namespace hippogriff
