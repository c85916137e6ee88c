// cuMemAlloc and its kin, and cuMemFree.
#include "shim/accounts.hpp"
#include "shim/ledger.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <cstdint>
#include <limits>

namespace hippogriff::shim {
namespace {

// The first versions have addresses and sizes of 32 bits: Address and Size tell them apart.
template <Function Symbol, typename Address, typename Size>
CUresult CUDAAPI allocate_plain(Address* address, Size size_bytes) {
  const auto call = [&] {
    return real<CUresult CUDAAPI(Address*, Size)>(Symbol)(address, size_bytes);
  };
  return allocate(Kind::memory, size_bytes, call, [&] { return std::uint64_t{*address}; });
}

CUresult CUDAAPI allocate_managed(CUdeviceptr* address, std::size_t size_bytes, unsigned flags) {
  const auto call = [&] { return HIPPO_REAL(cuMemAllocManaged)(address, size_bytes, flags); };
  return allocate(Kind::memory, size_bytes, call, [&] { return std::uint64_t{*address}; });
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? UINT64_MAX : result;
}

// Drivers align rows to this. The pitch is known once the driver has answered: what it is beyond
// that is taken then, and an allocation that is too large with it is freed again.
constexpr std::uint64_t row_alignment_bytes = 512;

template <Function Symbol, Function FreeSymbol, typename Address, typename Size>
CUresult CUDAAPI allocate_pitch(
    Address* address, Size* pitch_bytes, Size width_bytes, Size height, unsigned element_bytes) {
  const std::uint64_t units =
      width_bytes / row_alignment_bytes + (width_bytes % row_alignment_bytes == 0 ? 0 : 1);
  const std::uint64_t asked_bytes = product(product(units, row_alignment_bytes), height);
  const auto call = [&] {
    return real<CUresult CUDAAPI(Address*, Size*, Size, Size, unsigned)>(Symbol)(
        address, pitch_bytes, width_bytes, height, element_bytes);
  };
  Place place;
  const Standing standing = current_place(&place);
  if (standing == Standing::nowhere) {
    return call();
  }
  if (standing == Standing::refused || !take_bytes(place.device, asked_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    ledger().give(place.device, asked_bytes);
    return result;
  }
  const std::uint64_t size_bytes = product(*pitch_bytes, height);
  if (size_bytes < asked_bytes) {
    ledger().give(place.device, asked_bytes - size_bytes);
  } else if (!take_bytes(place.device, size_bytes - asked_bytes)) {
    real<CUresult CUDAAPI(Address)>(FreeSymbol)(*address);
    ledger().give(place.device, asked_bytes);
    *address = 0;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  accounts().live.put(Kind::memory, *address, {size_bytes, place.device, place.context, nullptr});
  return result;
}

template <Function Symbol, typename Address>
CUresult CUDAAPI free_plain(Address address) {
  return release(Kind::memory, address, [address] {
    return real<CUresult CUDAAPI(Address)>(Symbol)(address);
  });
}

template <Function Symbol>
CUresult CUDAAPI free_in_stream(CUdeviceptr address, CUstream stream) {
  return release(Kind::memory, address, [address, stream] {
    return real<CUresult CUDAAPI(CUdeviceptr, CUstream)>(Symbol)(address, stream);
  });
}

}  // namespace

std::span<const Wrapper> memory_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuMemAlloc, (&allocate_plain<F::cuMemAlloc, unsigned, unsigned>)),
      HIPPO_WRAPPER(cuMemAlloc_v2, (&allocate_plain<F::cuMemAlloc_v2, CUdeviceptr, std::size_t>)),
      HIPPO_WRAPPER(cuMemAllocManaged, &allocate_managed),
      HIPPO_WRAPPER(cuMemAllocPitch,
                    (&allocate_pitch<F::cuMemAllocPitch, F::cuMemFree, unsigned, unsigned>)),
      HIPPO_WRAPPER(
          cuMemAllocPitch_v2,
          (&allocate_pitch<F::cuMemAllocPitch_v2, F::cuMemFree_v2, CUdeviceptr, std::size_t>)),
      HIPPO_WRAPPER(cuMemFree, (&free_plain<F::cuMemFree, unsigned>)),
      HIPPO_WRAPPER(cuMemFree_v2, (&free_plain<F::cuMemFree_v2, CUdeviceptr>)),
      HIPPO_WRAPPER(cuMemFreeAsync, &free_in_stream<F::cuMemFreeAsync>),
      HIPPO_WRAPPER(cuMemFreeAsync_ptsz, &free_in_stream<F::cuMemFreeAsync_ptsz>),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
