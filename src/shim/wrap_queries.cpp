// How much memory there is: the reservation's answer, not the device's.
#include "shim/accounts.hpp"
#include "shim/ledger.hpp"
#include "shim/wrapper.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

namespace hippogriff::shim {
namespace {

template <typename Size>
Size fitting(std::uint64_t size_bytes) noexcept {
  return static_cast<Size>(std::min<std::uint64_t>(size_bytes, std::numeric_limits<Size>::max()));
}

// As if the reservation were there: asking does not claim it, and counts no context that does.
template <typename Size>
CUresult tell_unclaimed(Size* free_bytes, Size* total_bytes, CUdevice device) noexcept {
  const auto reserved = fitting<Size>(ledger().size_bytes(device));
  if (free_bytes != nullptr) {
    *free_bytes = reserved;
  }
  if (total_bytes != nullptr) {
    *total_bytes = std::min(*total_bytes, reserved);
  }
  return CUDA_SUCCESS;
}

template <Function Symbol, typename Size>
CUresult CUDAAPI memory_info(Size* free_bytes, Size* total_bytes) {
  const CUresult result = real<CUresult CUDAAPI(Size*, Size*)>(Symbol)(free_bytes, total_bytes);
  CUdevice device = 0;
  if (result == CUDA_SUCCESS && HIPPO_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS &&
      !ledger().is_claimed(device)) {
    return tell_unclaimed(free_bytes, total_bytes, device);
  }
  Place place;
  if (result != CUDA_SUCCESS || current_place(&place) == Standing::nowhere) {
    return result;
  }
  const std::uint64_t reserved = ledger().size_bytes(place.device);
  if (reserved == Ledger::unlimited) {
    return result;
  }
  for (const auto& pool : accounts().pools.of_device(place.device)) {
    pool->settle();
  }
  const std::uint64_t used = ledger().used_bytes(place.device);
  if (free_bytes != nullptr) {
    *free_bytes = std::min(*free_bytes, fitting<Size>(used < reserved ? reserved - used : 0));
  }
  if (total_bytes != nullptr) {
    *total_bytes = std::min(*total_bytes, fitting<Size>(reserved));
  }
  return result;
}

template <Function Symbol, typename Size>
CUresult CUDAAPI total_memory(Size* size_bytes, CUdevice device) {
  const CUresult result = real<CUresult CUDAAPI(Size*, CUdevice)>(Symbol)(size_bytes, device);
  if (result == CUDA_SUCCESS) {
    *size_bytes = std::min(*size_bytes, fitting<Size>(ledger().size_bytes(device)));
  }
  return result;
}

}  // namespace

std::span<const Wrapper> query_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuMemGetInfo, (&memory_info<F::cuMemGetInfo, unsigned>)),
      HIPPO_WRAPPER(cuMemGetInfo_v2, (&memory_info<F::cuMemGetInfo_v2, std::size_t>)),
      HIPPO_WRAPPER(cuDeviceTotalMem, (&total_memory<F::cuDeviceTotalMem, unsigned>)),
      HIPPO_WRAPPER(cuDeviceTotalMem_v2, (&total_memory<F::cuDeviceTotalMem_v2, std::size_t>)),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
