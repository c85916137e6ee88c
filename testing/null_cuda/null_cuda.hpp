// A driver without devices that keeps exact books: every way to allocate device memory, as numbers
// only. The shim's tests run over it, found through HIPPOGRIFF_CUDA_DRIVER, and compare its sums
// with theirs.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>

namespace hippogriff::testing {

// The arguments of the last cuLaunchKernel.
struct Launch {
  void* function;
  unsigned numbers[7];
  void* stream;
  void** parameters;
  void** extra;
};

// Each device has this much.
inline constexpr std::uint64_t null_device_bytes = std::uint64_t{1} << 30U;
inline constexpr int null_device_count = 2;

}  // namespace hippogriff::testing

// What the library exports beside the driver's functions. Thread-safe.
extern "C" {
// Bytes of a device that are not free: allocations, pools with what they keep, contexts.
std::uint64_t null_cuda_held(int device);
// How often a driver function that allocates was called.
std::uint64_t null_cuda_allocations();
// How often it was asked whether a stream captures.
std::uint64_t null_cuda_capture_questions();
// The next so many allocations answer CUDA_ERROR_OUT_OF_MEMORY.
void null_cuda_fail(int count);
// What a context takes of its device beside its allocations.
void null_cuda_context_bytes(std::uint64_t size_bytes);
// What rows of pitched memory are aligned to; 512 at first.
void null_cuda_row_alignment(int size_bytes);
// The version of the driver, and whether cuGetProcAddress gives addresses of its own.
void null_cuda_version(int version, int private_addresses);
// What the runtime does through a private table: the primary context is made and current.
void null_cuda_make_primary_current(int device);
const hippogriff::testing::Launch* null_cuda_last_launch();
float null_cuda_last_bias();
// The bytes of the last handle given to cuIpcOpenMemHandle, by value.
const unsigned char* null_cuda_last_handle();
}

namespace hippogriff::testing {

// A function of the null driver itself, past the shim.
template <typename Signature>
Signature* null_function(const char* name) {
  static void* const library = [] {
    const char* file = std::getenv("HIPPOGRIFF_CUDA_DRIVER");  // NOLINT(concurrency-mt-unsafe)
    return file == nullptr ? nullptr : ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  }();
  return library == nullptr ? nullptr : reinterpret_cast<Signature*>(::dlsym(library, name));
}

#define HIPPO_NULL(name) (*::hippogriff::testing::null_function<decltype(::name)>(#name))

}  // namespace hippogriff::testing
