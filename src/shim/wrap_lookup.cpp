// How programs find functions: cuGetProcAddress, which must lead to our wrappers, and cuInit.
#include "shim/wrapper.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <functional>
#include <string_view>

namespace hippogriff::shim {
namespace {

CUresult CUDAAPI initialize(unsigned flags) {
  if (!has_driver()) {
    static constinit std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      std::fputs(
          "hippogriff: no CUDA driver was found beside the shim: set "
          "HIPPOGRIFF_CUDA_DRIVER to its libcuda.so.1\n",
          stderr);
    }
    return CUDA_ERROR_NO_DEVICE;
  }
  return HIPPO_REAL(cuInit)(flags);
}

// The wrapper for what the driver found under a name, or what it found. The driver may have
// versions we do not know, and may know fewer than we do, so it is not enough to go by the version
// asked for: `found` is compared with what the driver itself says of each version, the oldest
// first. ask(version) is its answer for that version in the same flavour of stream.
template <typename Ask>
const void* translate(const char* name, const void* found, bool per_thread, Ask&& ask) noexcept {
  const std::string_view wanted = name;
  for (const ProcAddress& meaning : proc_addresses) {
    if (wanted != meaning.name) {
      continue;
    }
    const Function symbol = per_thread ? meaning.per_thread_symbol : meaning.symbol;
    const void* wrapper = wrapper_of(symbol);
    if (wrapper != nullptr && (found == real_address(symbol) || found == ask(meaning.version))) {
      return wrapper;
    }
  }
  // A symbol's own name, which the driver need not understand.
  const auto* const end = function_names.end();
  const auto* const symbol = std::lower_bound(
      function_names.begin(), end, wanted, [](std::string_view a, std::string_view b) {
        return a < b;
      });
  if (symbol != end && wanted == *symbol) {
    const auto function = static_cast<Function>(symbol - function_names.begin());
    if (wrapper_of(function) != nullptr && found == real_address(function)) {
      return wrapper_of(function);
    }
  }
  return found;
}

bool is_per_thread(cuuint64_t flags, bool by_default) noexcept {
  if ((flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0) {
    return true;
  }
  return by_default && (flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM) == 0;
}

CUresult CUDAAPI find_function(const char* name, void** found, int version, cuuint64_t flags) {
  const CUresult result = HIPPO_REAL(cuGetProcAddress)(name, found, version, flags);
  if (result != CUDA_SUCCESS || *found == nullptr) {
    return result;
  }
  const auto ask = [&](int of_version) -> const void* {
    void* other = nullptr;
    const CUresult known = HIPPO_REAL(cuGetProcAddress)(name, &other, of_version, flags);
    return known == CUDA_SUCCESS ? other : nullptr;
  };
  *found = const_cast<void*>(translate(name, *found, is_per_thread(flags, false), ask));
  return result;
}

template <Function Symbol, bool PerThreadByDefault>
CUresult CUDAAPI find_function_v2(const char* name,
                                  void** found,
                                  int version,
                                  cuuint64_t flags,
                                  CUdriverProcAddressQueryResult* status) {
  const auto theirs = real<decltype(::cuGetProcAddress_v2)>(Symbol);
  const CUresult result = theirs(name, found, version, flags, status);
  if (result != CUDA_SUCCESS || *found == nullptr) {
    return result;
  }
  const auto ask = [&](int of_version) -> const void* {
    void* other = nullptr;
    return theirs(name, &other, of_version, flags, nullptr) == CUDA_SUCCESS ? other : nullptr;
  };
  const bool per_thread = is_per_thread(flags, PerThreadByDefault);
  *found = const_cast<void*>(translate(name, *found, per_thread, ask));
  return result;
}

}  // namespace

std::span<const Wrapper> lookup_wrappers() noexcept {
  using F = Function;
  static const std::array wrappers = {
      HIPPO_WRAPPER(cuInit, &initialize),
      HIPPO_WRAPPER(cuGetProcAddress, &find_function),
      HIPPO_WRAPPER(cuGetProcAddress_v2, (&find_function_v2<F::cuGetProcAddress_v2, false>)),
      // Their header declares it only under the name of the other.
      make_wrapper<decltype(::cuGetProcAddress_v2)>(
          F::cuGetProcAddress_v2_ptsz, &find_function_v2<F::cuGetProcAddress_v2_ptsz, true>),
  };
  return wrappers;
}

const void* wrapper_of(Function function) noexcept {
  static const auto table = [] {
    std::array<const void*, function_names.size()> addresses = {};
    for (const auto wrappers : {memory_wrappers(),
                                array_wrappers(),
                                pool_wrappers(),
                                capture_wrappers(),
                                physical_wrappers(),
                                context_wrappers(),
                                graph_wrappers(),
                                query_wrappers(),
                                lookup_wrappers()}) {
      for (const Wrapper& wrapper : wrappers) {
        addresses[static_cast<std::size_t>(wrapper.function)] = wrapper.address;
      }
    }
    return addresses;
  }();
  return table[static_cast<std::size_t>(function)];
}

}  // namespace hippogriff::shim
