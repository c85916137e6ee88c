// Loads the real driver at the first call and fills the table that the trampolines jump through.
#include "shim/driver_api.hpp"
#include "shim/driver_file.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

// The trampolines' table, in the generated assembly; it holds stubs until the driver is loaded.
extern "C" std::atomic<const void*> hippogriff_shim_entries[];
extern "C" const void* hippogriff_shim_resolve(std::uint32_t index) noexcept;
// By this symbol one shim knows another, so that none takes another for the driver.
extern "C" __attribute__((visibility("default"))) const int hippogriff_shim_mark = 1;

namespace hippogriff::shim {
namespace {

constexpr std::size_t function_count = function_names.size();

// Called with any arguments, which the caller's side of the calling convention cleans up.
CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult no_device() {
  return CUDA_ERROR_NO_DEVICE;
}

struct Driver {
  void* handle = nullptr;
  std::array<const void*, function_count> functions = {};
};

std::string our_file() {
  Dl_info info = {};
  const bool known = ::dladdr(&hippogriff_shim_mark, &info) != 0 && info.dli_fname != nullptr;
  return known ? info.dli_fname : "";
}

void* open_driver() {
  for (const std::string& file : driver_candidates(our_file())) {
    void* handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      continue;
    }
    if (::dlsym(handle, "hippogriff_shim_mark") == nullptr &&
        ::dlsym(handle, "cuInit") != nullptr) {
      return handle;
    }
    ::dlclose(handle);
  }
  return nullptr;
}

Driver* load_driver() noexcept {
  static Driver driver;
  try {
    driver.handle = open_driver();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "hippogriff: cannot look for the CUDA driver: %s\n", failure.what());
  }
  const auto* const stub = driver.handle == nullptr ? reinterpret_cast<const void*>(&no_device)
                                                    : reinterpret_cast<const void*>(&not_supported);
  for (std::size_t index = 0; index < function_count; ++index) {
    const void* found =
        driver.handle == nullptr ? nullptr : ::dlsym(driver.handle, function_names[index]);
    driver.functions[index] = found == nullptr ? stub : found;
    const auto function = static_cast<Function>(index);
    const bool accounted =
        wrapper_of(function) != nullptr && (found != nullptr || function == Function::cuInit);
    hippogriff_shim_entries[index].store(accounted ? wrapper_of(function) : driver.functions[index],
                                         std::memory_order_release);
  }
  return &driver;
}

const Driver& driver() noexcept {
  static const Driver* const loaded = load_driver();
  return *loaded;
}

}  // namespace

const void* real_address(Function function) noexcept {
  return driver().functions[static_cast<std::size_t>(function)];
}

const void* entry_address(Function function) noexcept {
  static_cast<void>(driver());
  return hippogriff_shim_entries[static_cast<std::size_t>(function)].load(
      std::memory_order_acquire);
}

bool has_driver() noexcept {
  return driver().handle != nullptr;
}

}  // namespace hippogriff::shim

const void* hippogriff_shim_resolve(std::uint32_t index) noexcept {
  return hippogriff::shim::entry_address(static_cast<hippogriff::shim::Function>(index));
}
