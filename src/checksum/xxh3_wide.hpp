// The same function as xxh3_of, compiled for processors with wider instructions, which they must
// have.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hippogriff {

#if defined(__x86_64__)
std::uint64_t xxh3_avx2(const void* data, std::size_t size_bytes) noexcept;
// AVX-512F, our own: most keys in registers, each word loaded once, words that change places once
// in 1024 bytes. Out of a core's own cache, 256 KiB at a time, a Xeon of an H200 machine hashes 52
// GB/s where the library with AVX-512 hashes 50 and with AVX2 35, with 16 cores at it 47, 27 and 20
// each; an EPYC of the fifth generation 154, 91 and 74, at addresses that are no multiples of 64
// 143, 93 and 61.
std::uint64_t xxh3_avx512(const void* data, std::size_t size_bytes) noexcept;
#endif

}  // namespace hippogriff
