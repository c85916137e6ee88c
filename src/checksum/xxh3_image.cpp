// The kernel's image as the build made it, put into the library's read-only data by the assembler.
#include "checksum/xxh3_image.hpp"

#if HIPPOGRIFF_HAS_CUDA

#ifndef HIPPOGRIFF_XXH3_IMAGE
#error "the build names the image that nvcc made of xxh3_kernel.cu"
#endif

// NOLINTNEXTLINE(hicpp-no-assembler): the one way to take a file into an object without a copy
__asm__(
    ".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden hippogriff_xxh3_image\n"
    ".globl hippogriff_xxh3_image\n"
    "hippogriff_xxh3_image:\n"
    ".incbin \"" HIPPOGRIFF_XXH3_IMAGE
    "\"\n"
    ".popsection\n");

// NOLINTNEXTLINE(readability-identifier-naming): as the assembler calls it
extern "C" __attribute__((visibility("hidden"))) const unsigned char hippogriff_xxh3_image[];

namespace hippogriff::xxh3 {

const void* kernel_image() noexcept {
  return hippogriff_xxh3_image;
}

}  // namespace hippogriff::xxh3

#endif  // HIPPOGRIFF_HAS_CUDA
