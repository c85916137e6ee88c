// Contexts: what they take themselves, and what their end frees.
#include "shim/accounts.hpp"
#include "shim/ledger.hpp"
#include "shim/wrapper.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

namespace hippogriff::shim {
namespace {

// Calls the driver for a new context of the device; a refusal is the driver's own for want of
// memory.
template <typename Call>
CUresult create_on(CUdevice device, CUcontext* handle, Call&& call) {
  const std::uint64_t size_bytes = ledger().context_bytes(device);
  if (!take_bytes(device, size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const CUresult result = call();
  if (result != CUDA_SUCCESS || !accounts().contexts.add(*handle, {device, false, 0, size_bytes})) {
    ledger().give(device, size_bytes);
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI create(CUcontext* handle, unsigned flags, CUdevice device) {
  return create_on(device, handle, [&] {
    return real<decltype(::cuCtxCreate_v2)>(Symbol)(handle, flags, device);
  });
}

CUresult CUDAAPI create_with_affinity(
    CUcontext* handle, CUexecAffinityParam* affinity, int count, unsigned flags, CUdevice device) {
  return create_on(device, handle, [&] {
    return HIPPO_REAL(cuCtxCreate_v3)(handle, affinity, count, flags, device);
  });
}

CUresult CUDAAPI create_with_parameters(CUcontext* handle,
                                        CUctxCreateParams* parameters,
                                        unsigned flags,
                                        CUdevice device) {
  return create_on(device, handle, [&] {
    return HIPPO_REAL(cuCtxCreate_v4)(handle, parameters, flags, device);
  });
}

// A context made of a green one: it allocates on its device and takes nothing itself.
CUresult CUDAAPI context_of_green(CUcontext* handle, CUgreenCtx green) {
  const CUresult result = HIPPO_REAL(cuCtxFromGreenCtx)(handle, green);
  CUcontext popped = nullptr;
  CUdevice device = 0;
  if (result == CUDA_SUCCESS && !accounts().contexts.find(*handle) &&
      HIPPO_REAL(cuCtxPushCurrent_v2)(*handle) == CUDA_SUCCESS) {
    if (HIPPO_REAL(cuCtxGetDevice)(&device) == CUDA_SUCCESS) {
      accounts().contexts.add(*handle, {device, false, 0, 0});
    }
    HIPPO_REAL(cuCtxPopCurrent_v2)(&popped);
  }
  return result;
}

// Everything is out of the books before the driver ends the context: another thread may get the
// same addresses, and the same handle, before this one has returned.
template <typename Call>
CUresult end(CUcontext handle, Call&& call) {
  Accounts& books = accounts();
  const std::optional<Context> context = books.contexts.remove(handle);
  auto entries = books.live.claim_all(handle, std::nullopt);
  const CUresult result = call();
  if (result != CUDA_SUCCESS) {
    books.live.put_back(std::move(entries));
    if (context) {
      books.contexts.add(handle, *context);
    }
    return result;
  }
  for (const auto& [key, held] : entries) {
    give_held(held);
  }
  if (context) {
    ledger().give(context->device, context->taken_bytes);
  }
  return result;
}

CUcontext current_or(CUcontext handle) noexcept {
  CUcontext current = handle;
  if (handle == nullptr) {
    HIPPO_REAL(cuCtxGetCurrent)(&current);
  }
  return current;
}

template <Function Symbol>
CUresult CUDAAPI destroy(CUcontext handle) {
  return end(current_or(handle),
             [handle] { return real<decltype(::cuCtxDestroy_v2)>(Symbol)(handle); });
}

CUresult CUDAAPI attach(CUcontext* handle, unsigned flags) {
  const CUresult result = HIPPO_REAL(cuCtxAttach)(handle, flags);
  if (result == CUDA_SUCCESS) {
    accounts().contexts.attach(*handle, 1);
  }
  return result;
}

CUresult CUDAAPI detach(CUcontext handle) {
  const auto call = [handle] { return HIPPO_REAL(cuCtxDetach)(handle); };
  return accounts().contexts.attach(handle, -1) < 0 ? end(handle, call) : call();
}

bool is_active(CUdevice device) noexcept {
  unsigned flags = 0;
  int active = 0;
  return HIPPO_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
         active != 0;
}

// After the driver has ended a device's primary context, the lock still held.
void forget_primary(CUdevice device) noexcept {
  Accounts& books = accounts();
  if (const std::optional<CUcontext> handle = books.contexts.primary_of(device)) {
    const std::optional<Context> context = books.contexts.remove(*handle);
    for (const auto& [key, held] : books.live.claim_all(*handle, device)) {
      give_held(held);
    }
    if (context) {
      ledger().give(device, context->taken_bytes);
    }
  }
  give_graphs(device);
  for (const auto& pool : books.pools.of_device(device)) {
    pool->settle();
  }
}

CUresult CUDAAPI retain_primary(CUcontext* handle, CUdevice device) {
  Accounts& books = accounts();
  if (books.contexts.primary_of(device)) {
    const std::lock_guard lock(books.contexts.primary_mutex);
    return HIPPO_REAL(cuDevicePrimaryCtxRetain)(handle, device);
  }
  // Without the lock: the ledger may wait.
  const std::uint64_t size_bytes = ledger().context_bytes(device);
  if (!take_bytes(device, size_bytes)) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::lock_guard lock(books.contexts.primary_mutex);
  const CUresult result = HIPPO_REAL(cuDevicePrimaryCtxRetain)(handle, device);
  if (result != CUDA_SUCCESS || !books.contexts.add(*handle, {device, true, 0, size_bytes})) {
    ledger().give(device, size_bytes);
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI release_primary(CUdevice device) {
  const std::lock_guard lock(accounts().contexts.primary_mutex);
  const CUresult result = real<decltype(::cuDevicePrimaryCtxRelease_v2)>(Symbol)(device);
  if (result == CUDA_SUCCESS && !is_active(device)) {
    forget_primary(device);
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI reset_primary(CUdevice device) {
  const std::lock_guard lock(accounts().contexts.primary_mutex);
  const CUresult result = real<decltype(::cuDevicePrimaryCtxReset_v2)>(Symbol)(device);
  // The context is made anew, and found anew, when it is used again.
  if (result == CUDA_SUCCESS) {
    forget_primary(device);
  }
  return result;
}

template <Function Symbol>
CUresult CUDAAPI destroy_stream(CUstream stream) {
  // Its handle may then be another stream's. Nobody allocates in it any more.
  forget_places();
  return real<decltype(::cuStreamDestroy_v2)>(Symbol)(stream);
}

}  // namespace

std::span<const Wrapper> context_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuCtxCreate, &create<F::cuCtxCreate>),
      HIPPO_WRAPPER(cuCtxCreate_v2, &create<F::cuCtxCreate_v2>),
      HIPPO_WRAPPER(cuCtxCreate_v3, &create_with_affinity),
      HIPPO_WRAPPER(cuCtxCreate_v4, &create_with_parameters),
      HIPPO_WRAPPER(cuCtxFromGreenCtx, &context_of_green),
      HIPPO_WRAPPER(cuCtxDestroy, &destroy<F::cuCtxDestroy>),
      HIPPO_WRAPPER(cuCtxDestroy_v2, &destroy<F::cuCtxDestroy_v2>),
      HIPPO_WRAPPER(cuCtxAttach, &attach),
      HIPPO_WRAPPER(cuCtxDetach, &detach),
      HIPPO_WRAPPER(cuDevicePrimaryCtxRetain, &retain_primary),
      HIPPO_WRAPPER(cuDevicePrimaryCtxRelease, &release_primary<F::cuDevicePrimaryCtxRelease>),
      HIPPO_WRAPPER(cuDevicePrimaryCtxRelease_v2,
                    &release_primary<F::cuDevicePrimaryCtxRelease_v2>),
      HIPPO_WRAPPER(cuDevicePrimaryCtxReset, &reset_primary<F::cuDevicePrimaryCtxReset>),
      HIPPO_WRAPPER(cuDevicePrimaryCtxReset_v2, &reset_primary<F::cuDevicePrimaryCtxReset_v2>),
      HIPPO_WRAPPER(cuStreamDestroy, &destroy_stream<F::cuStreamDestroy>),
      HIPPO_WRAPPER(cuStreamDestroy_v2, &destroy_stream<F::cuStreamDestroy_v2>),
  };
  return wrappers;
}

}  // namespace hippogriff::shim
