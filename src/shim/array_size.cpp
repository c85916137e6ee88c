// Element sizes of the array formats, and products that do not overflow.
#include "shim/array_size.hpp"

#include <algorithm>

namespace hippogriff::shim {
namespace {

struct Format {
  unsigned bits;       // of an element's channel, or of the whole element
  bool whole_element;  // channels do not multiply
};

// Block-compressed formats by their bits per texel; planar ones by the average of their planes.
Format format_of(CUarray_format format) noexcept {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return {8, false};
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return {16, false};
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return {32, false};
    case CU_AD_FORMAT_BC1_UNORM:
    case CU_AD_FORMAT_BC1_UNORM_SRGB:
    case CU_AD_FORMAT_BC4_UNORM:
    case CU_AD_FORMAT_BC4_SNORM:
      return {4, true};
    case CU_AD_FORMAT_UNORM_INT8X1:
    case CU_AD_FORMAT_SNORM_INT8X1:
    case CU_AD_FORMAT_BC2_UNORM:
    case CU_AD_FORMAT_BC2_UNORM_SRGB:
    case CU_AD_FORMAT_BC3_UNORM:
    case CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC5_UNORM:
    case CU_AD_FORMAT_BC5_SNORM:
    case CU_AD_FORMAT_BC6H_UF16:
    case CU_AD_FORMAT_BC6H_SF16:
    case CU_AD_FORMAT_BC7_UNORM:
    case CU_AD_FORMAT_BC7_UNORM_SRGB:
      return {8, true};
    case CU_AD_FORMAT_NV12:
      return {12, true};
    case CU_AD_FORMAT_UNORM_INT8X2:
    case CU_AD_FORMAT_SNORM_INT8X2:
    case CU_AD_FORMAT_UNORM_INT16X1:
    case CU_AD_FORMAT_SNORM_INT16X1:
    case CU_AD_FORMAT_NV16:
    case CU_AD_FORMAT_YUY2:
      return {16, true};
    case CU_AD_FORMAT_P010:
    case CU_AD_FORMAT_P016:
    case CU_AD_FORMAT_Y444_PLANAR8:
    case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
      return {24, true};
    case CU_AD_FORMAT_Y444_PLANAR10:
    case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
      return {48, true};
    case CU_AD_FORMAT_UNORM_INT16X4:
    case CU_AD_FORMAT_SNORM_INT16X4:
    case CU_AD_FORMAT_Y416:
      return {64, true};
    default:  // 32 bits: all that is left of what we know, and a guess for newer ones
      return {32, true};
  }
}

constexpr unsigned no_memory_flags = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;

std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) noexcept {
  return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

}  // namespace

std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array) noexcept {
  if ((array.Flags & no_memory_flags) != 0) {
    return 0;
  }
  const Format format = format_of(array.Format);
  const std::uint64_t bits =
      format.whole_element ? format.bits : product(format.bits, array.NumChannels);
  const std::uint64_t area = product(array.Width, std::max<std::uint64_t>(array.Height, 1));
  const std::uint64_t elements = product(area, std::max<std::uint64_t>(array.Depth, 1));
  const std::uint64_t all_bits = product(elements, bits);
  return all_bits == UINT64_MAX ? all_bits : all_bits / 8 + (all_bits % 8 == 0 ? 0 : 1);
}

std::uint64_t mipmapped_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array,
                                    unsigned levels) noexcept {
  std::uint64_t total = 0;
  CUDA_ARRAY3D_DESCRIPTOR level = array;
  const bool layered = (array.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  // No direction has more than 64 halves.
  for (unsigned index = 0; index < std::clamp(levels, 1U, 64U); ++index) {
    total = sum(total, array_bytes(level));
    level.Width = std::max<std::size_t>(level.Width / 2, 1);
    level.Height = level.Height == 0 ? 0 : std::max<std::size_t>(level.Height / 2, 1);
    if (!layered && level.Depth != 0) {
      level.Depth = std::max<std::size_t>(level.Depth / 2, 1);
    }
  }
  return total;
}

}  // namespace hippogriff::shim
