// The xxHash library, inlined into a file of its own that the build compiles with -mavx512f.
// Nothing of the C++ library may be here: the linker could take this copy of it for every
// processor.
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

#define XXH_INLINE_ALL  // NOLINT(readability-identifier-naming): theirs
#include <xxhash.h>

namespace hippogriff {

std::uint64_t xxh3_avx512(const void* data, std::size_t size_bytes) noexcept {
  return XXH3_64bits(data, size_bytes);
}

}  // namespace hippogriff

#endif  // __x86_64__
