// How much memory a CUDA array takes, by its descriptor.
#pragma once

#include "shim/driver_api.hpp"

#include <cstdint>

namespace hippogriff::shim {

// The bytes of the elements, without the driver's own padding; 0 for arrays that get their memory
// by mapping (sparse, deferred). Saturates at 2^64 - 1.
std::uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array) noexcept;
// All levels, each half the one before in every direction but the layers.
std::uint64_t mipmapped_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR& array, unsigned levels) noexcept;

}  // namespace hippogriff::shim
