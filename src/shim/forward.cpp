// Loads the real driver at the first call and fills the table that the trampolines jump through.
#include "shim/driver_api.hpp"
#include "shim/driver_file.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
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

// The driver's functions and stubs for those it has not. Throws std::bad_alloc.
std::unique_ptr<Driver> load_driver() {
  auto driver = std::make_unique<Driver>();
  driver->handle = open_driver();
  const auto* const stub = driver->handle == nullptr
                               ? reinterpret_cast<const void*>(&no_device)
                               : reinterpret_cast<const void*>(&not_supported);
  for (std::size_t index = 0; index < function_count; ++index) {
    const void* found =
        driver->handle == nullptr ? nullptr : ::dlsym(driver->handle, function_names[index]);
    driver->functions[index] = found == nullptr ? stub : found;
  }
  return driver;
}

bool has(const Driver& driver, std::size_t index) noexcept {
  return driver.functions[index] != reinterpret_cast<const void*>(&no_device) &&
         driver.functions[index] != reinterpret_cast<const void*>(&not_supported);
}

// Without a driver cuInit still is ours, which says so.
const void* entry_of(const Driver& driver, Function function) noexcept {
  const auto index = static_cast<std::size_t>(function);
  const void* wrapper = wrapper_of(function);
  const bool is_accounted =
      wrapper != nullptr && (has(driver, index) || function == Function::cuInit);
  return is_accounted ? wrapper : driver.functions[index];
}

const Driver& driver() noexcept {
  static constinit std::atomic<const Driver*> loaded{nullptr};
  if (const Driver* known = loaded.load(std::memory_order_acquire); known != nullptr) {
    return *known;
  }
  // No lock: dlopen has one of its own, which a thread may hold that runs a constructor that calls
  // us. Threads that come together each load the driver, which gives all of them the same.
  std::unique_ptr<Driver> mine;
  try {
    mine = load_driver();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "hippogriff: cannot load the CUDA driver: %s\n", failure.what());
    std::abort();
  }
  const Driver* first = nullptr;
  if (!loaded.compare_exchange_strong(first, mine.get(), std::memory_order_acq_rel)) {
    return *first;
  }
  const Driver* const ours = mine.release();
  for (std::size_t index = 0; index < function_count; ++index) {
    hippogriff_shim_entries[index].store(entry_of(*ours, static_cast<Function>(index)),
                                         std::memory_order_release);
  }
  return *ours;
}

}  // namespace

const void* real_address(Function function) noexcept {
  return driver().functions[static_cast<std::size_t>(function)];
}

const void* entry_address(Function function) noexcept {
  return entry_of(driver(), function);
}

bool has_driver() noexcept {
  return driver().handle != nullptr;
}

}  // namespace hippogriff::shim

const void* hippogriff_shim_resolve(std::uint32_t index) noexcept {
  return hippogriff::shim::entry_address(static_cast<hippogriff::shim::Function>(index));
}
