// Sizes of CUDA arrays against figures worked out by hand.
#include "shim/array_size.hpp"

#include <gtest/gtest.h>

namespace {

using hippogriff::shim::array_bytes;
using hippogriff::shim::mipmapped_array_bytes;

TEST(ArraySize, plain_formats_multiply_channels) {
  EXPECT_EQ(array_bytes({10, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}), 10U);
  EXPECT_EQ(array_bytes({10, 3, 0, CU_AD_FORMAT_HALF, 2, 0}), 120U);
  EXPECT_EQ(array_bytes({10, 3, 2, CU_AD_FORMAT_FLOAT, 4, 0}), 960U);
}

TEST(ArraySize, packed_formats_do_not) {
  EXPECT_EQ(array_bytes({4, 4, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}), 8U);
  EXPECT_EQ(array_bytes({4, 4, 0, CU_AD_FORMAT_BC7_UNORM, 4, 0}), 16U);
  EXPECT_EQ(array_bytes({4, 4, 0, CU_AD_FORMAT_NV12, 3, 0}), 24U);
  EXPECT_EQ(array_bytes({4, 4, 0, CU_AD_FORMAT_UNORM_INT16X4, 4, 0}), 128U);
}

TEST(ArraySize, part_of_a_byte_is_a_byte) {
  EXPECT_EQ(array_bytes({1, 0, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}), 1U);
}

TEST(ArraySize, arrays_that_are_mapped_later_take_nothing) {
  EXPECT_EQ(array_bytes({64, 64, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_SPARSE}), 0U);
  EXPECT_EQ(array_bytes({64, 64, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_DEFERRED_MAPPING}), 0U);
}

TEST(ArraySize, sizes_beyond_64_bits_saturate) {
  constexpr std::size_t huge = std::size_t{1} << 40U;
  EXPECT_EQ(array_bytes({huge, huge, huge, CU_AD_FORMAT_FLOAT, 4, 0}), UINT64_MAX);
  EXPECT_EQ(mipmapped_array_bytes({huge, huge, huge, CU_AD_FORMAT_FLOAT, 4, 0}, 3), UINT64_MAX);
}

TEST(ArraySize, levels_halve_but_layers_stay) {
  EXPECT_EQ(mipmapped_array_bytes({8, 8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 4),
            512U + 64 + 8 + 1);
  EXPECT_EQ(
      mipmapped_array_bytes({8, 8, 8, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_LAYERED}, 4),
      512U + 128 + 32 + 8);
}

TEST(ArraySize, an_absurd_number_of_levels_ends) {
  EXPECT_EQ(mipmapped_array_bytes({1, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, UINT32_MAX), 64U);
}

}  // namespace
