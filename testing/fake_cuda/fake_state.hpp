// What the fake driver knows: devices, contexts, memory, registrations, and what is to fail.
#pragma once

#include "testing/fake_cuda/fake_stream.hpp"

#include <cuda.h>

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fake_cuda {

inline constexpr int device_count = 2;
inline constexpr std::uint64_t default_memory_bytes = 1ULL << 30;

// Address space with or without CUDA's device memory in it.
struct Allocation {
  std::size_t size_bytes = 0;
  int device = 0;
  CUmemorytype type = CU_MEMORYTYPE_DEVICE;
  bool managed = false;
  std::uint64_t memory = 0;  // what cuMemMap put there, by number; 0: cuMemAlloc's
};

// Memory without an address: what cuMemCreate makes. Goes with its last handle and mapping.
struct Physical {
  std::size_t size_bytes = 0;
  int device = 0;
  int references = 1;
};

struct Device {
  int retained = 0;
  std::uint64_t memory_bytes = default_memory_bytes;
  std::uint64_t taken_bytes = 0;
};

struct Injection {
  int calls_left = 0;  // 0: every call fails
  CUresult result = CUDA_SUCCESS;
};

// Everything, behind one lock.
struct State {
  std::mutex mutex;
  pid_t process = 0;
  int driver_version = 13000;
  std::atomic<int> context_ms = 0;  // that making a context takes
  std::array<Device, device_count> devices;
  std::map<std::string, Injection> injections;
  std::map<int, int> attributes;
  std::map<CUdeviceptr, Allocation> allocations;
  std::map<CUdeviceptr, Allocation> registrations;
  std::map<CUdeviceptr, std::size_t> reservations;  // of addresses
  std::map<std::uint64_t, Physical> physical;       // by number
  std::uint64_t physical_count = 0;                 // ever made
  std::map<CUstream, std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Stream>> destroyed_streams;
  std::map<CUevent, std::shared_ptr<Event>> events;
  std::set<CUstream> capturing;
  int spoiled_count = 0;             // captures that calls made fail
  std::set<CUcontext> own_contexts;  // made beside the primary ones
  std::set<CUmodule> modules;
};

State& state();

// The result a driver function must return before doing anything: an injected one, "not
// initialized" before cuInit or in a forked child, else CUDA_SUCCESS.
CUresult enter(const char* function);

// This thread's current contexts, innermost last.
std::vector<CUcontext>& context_stack();
CUstreamCaptureMode& capture_mode();
// A context's device; -1 for none.
int device_of(CUcontext context);
CUcontext context_of(int device);
// One more context of a device. Wants the lock.
CUcontext make_context(int device);

// Memory of a device, counted against its limit. Call with the lock held.
CUresult take(CUdeviceptr* address, std::size_t size_bytes, int device);
CUresult give(CUdeviceptr address);
// What a call returns that no stream may be capturing during, which spoils the captures. Call with
// the lock held.
CUresult spoil_captures();
// Queues work on a stream, by its handle; the two default streams are made at their first use.
CUresult push(CUstream handle, Stream::Work work);
// Whether all of a range lies in one allocation of device memory.
bool is_device_range(CUdeviceptr address, std::size_t size_bytes);
// The allocation or registration around an address, or null. Call with the lock held.
const std::pair<const CUdeviceptr, Allocation>* around(
    const std::map<CUdeviceptr, Allocation>& ranges, CUdeviceptr address);

}  // namespace fake_cuda

// The current function's injected result, if any, comes first.
#define HIPPO_FAKE_ENTER()                                                              \
  if (const CUresult injected = fake_cuda::enter(__func__); injected != CUDA_SUCCESS) { \
    return injected;                                                                    \
  }
#define HIPPO_FAKE_ENTER_WITH_CONTEXT()     \
  HIPPO_FAKE_ENTER()                        \
  if (fake_cuda::context_stack().empty()) { \
    return CUDA_ERROR_INVALID_CONTEXT;      \
  }
