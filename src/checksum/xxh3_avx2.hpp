// The same function as xxh3_of, compiled for processors with AVX2.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hippogriff {

#if defined(__x86_64__)
// The processor must have AVX2.
std::uint64_t xxh3_avx2(const void* data, std::size_t size_bytes) noexcept;
#endif

}  // namespace hippogriff
