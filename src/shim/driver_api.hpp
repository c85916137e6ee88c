// The driver's functions by number, the real ones behind ours, and how a call gets from one to the
// other.
#pragma once

// With it cuda.h declares every version of every function under its own name.
#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include <cuda.h>

#include <shim_functions.hpp>

#include <cstddef>

namespace hippogriff::shim {

// The real driver's function, or one that returns CUDA_ERROR_NOT_SUPPORTED where it has none;
// without a driver one that returns CUDA_ERROR_NO_DEVICE. The first call, of any thread, loads the
// driver.
const void* real_address(Function function) noexcept;

// What stands in the exported function's place: our wrapper where the call is accounted, else
// real_address.
const void* entry_address(Function function) noexcept;

// Whether a driver was found.
bool has_driver() noexcept;

// Our wrapper of the function; nullptr when it is forwarded as it is. Constant; needs no driver.
const void* wrapper_of(Function function) noexcept;

template <typename Signature>
Signature* real(Function function) noexcept {
  return reinterpret_cast<Signature*>(const_cast<void*>(real_address(function)));
}

// The real driver's function of that symbol, with its prototype.
#define HIPPO_REAL(symbol) \
  ::hippogriff::shim::real<decltype(::symbol)>(::hippogriff::shim::Function::symbol)

}  // namespace hippogriff::shim
