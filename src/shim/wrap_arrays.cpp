// CUDA arrays, plain and mipmapped.
#include "shim/accounts.hpp"
#include "shim/array_size.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <cstdint>

namespace hippogriff::shim {
namespace {

template <typename Pointer>
std::uint64_t number_of(Pointer* handle) noexcept {
  return reinterpret_cast<std::uint64_t>(handle);
}

template <typename Descriptor>
CUDA_ARRAY3D_DESCRIPTOR in_three_dimensions(const Descriptor& array) noexcept {
  CUDA_ARRAY3D_DESCRIPTOR whole = {
      array.Width, array.Height, 0, array.Format, array.NumChannels, 0};
  if constexpr (requires { array.Depth; }) {
    whole.Depth = array.Depth;
    whole.Flags = array.Flags;
  }
  return whole;
}

template <Function Symbol, typename Descriptor>
CUresult CUDAAPI create_array(CUarray* handle, const Descriptor* descriptor) {
  const auto call = [&] {
    return real<CUresult CUDAAPI(CUarray*, const Descriptor*)>(Symbol)(handle, descriptor);
  };
  if (descriptor == nullptr) {
    return call();
  }
  const std::uint64_t size_bytes = array_bytes(in_three_dimensions(*descriptor));
  return allocate(Kind::array, size_bytes, call, [&] { return number_of(*handle); });
}

CUresult CUDAAPI destroy_array(CUarray handle) {
  return release(
      Kind::array, number_of(handle), [handle] { return HIPPO_REAL(cuArrayDestroy)(handle); });
}

CUresult CUDAAPI create_mipmapped_array(CUmipmappedArray* handle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                        unsigned levels) {
  const auto call = [&] { return HIPPO_REAL(cuMipmappedArrayCreate)(handle, descriptor, levels); };
  if (descriptor == nullptr) {
    return call();
  }
  const std::uint64_t size_bytes = mipmapped_array_bytes(*descriptor, levels);
  return allocate(Kind::mipmapped_array, size_bytes, call, [&] { return number_of(*handle); });
}

CUresult CUDAAPI destroy_mipmapped_array(CUmipmappedArray handle) {
  return release(Kind::mipmapped_array, number_of(handle), [handle] {
    return HIPPO_REAL(cuMipmappedArrayDestroy)(handle);
  });
}

}  // namespace

std::span<const Wrapper> array_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuArrayCreate, (&create_array<F::cuArrayCreate, CUDA_ARRAY_DESCRIPTOR_v1>)),
      HIPPO_WRAPPER(cuArrayCreate_v2, (&create_array<F::cuArrayCreate_v2, CUDA_ARRAY_DESCRIPTOR>)),
      HIPPO_WRAPPER(cuArray3DCreate,
                    (&create_array<F::cuArray3DCreate, CUDA_ARRAY3D_DESCRIPTOR_v1>)),
      HIPPO_WRAPPER(cuArray3DCreate_v2,
                    (&create_array<F::cuArray3DCreate_v2, CUDA_ARRAY3D_DESCRIPTOR>)),
      HIPPO_WRAPPER(cuArrayDestroy, &destroy_array),
      HIPPO_WRAPPER(cuMipmappedArrayCreate, &create_mipmapped_array),
      HIPPO_WRAPPER(cuMipmappedArrayDestroy, &destroy_mipmapped_array),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
