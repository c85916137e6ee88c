// The xxHash library, inlined for every processor of this architecture, and the choice of the wider
// ones beside it.
#include "checksum/xxh3_host.hpp"

#include "checksum/xxh3_wide.hpp"

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): theirs
#include <xxhash.h>

namespace hippogriff {
namespace {

std::uint64_t xxh3_baseline(const void* data, std::size_t size_bytes) noexcept {
  return XXH3_64bits(data, size_bytes);
}

using Hash = std::uint64_t (*)(const void* data, std::size_t size_bytes) noexcept;

Hash widest() noexcept {
#if defined(__x86_64__)
  // Processors with AVX-512F alone, before Ice Lake, slow their clock down for it.
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vbmi2") != 0) {
    return xxh3_avx512;
  }
  if (__builtin_cpu_supports("avx2") != 0) {
    return xxh3_avx2;
  }
#endif
  return xxh3_baseline;
}

}  // namespace

std::uint64_t xxh3_of(const void* data, std::size_t size_bytes) noexcept {
  static const Hash hash = widest();
  return hash(data, size_bytes);
}

struct Xxh3Stream::State {
  XXH3_state_t state;
};

Xxh3Stream::Xxh3Stream() : state_(std::make_unique<State>()) {
  reset();
}

Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::reset() noexcept {
  XXH3_64bits_reset(&state_->state);
}

void Xxh3Stream::update(const void* data, std::size_t size_bytes) noexcept {
  XXH3_64bits_update(&state_->state, data, size_bytes);
}

std::uint64_t Xxh3Stream::digest() const noexcept {
  return XXH3_64bits_digest(&state_->state);
}

}  // namespace hippogriff
