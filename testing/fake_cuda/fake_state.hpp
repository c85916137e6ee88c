// What the fake driver knows: devices, contexts, memory, registrations, and what is to fail.
#pragma once

#include "testing/fake_cuda/fake_stream.hpp"

#include <cuda.h>

#include <sys/types.h>

#include <array>
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
  struct Pool* pool = nullptr;
};

struct Pool {
  int device = 0;
  std::uint64_t used_bytes = 0;
  std::uint64_t threshold_bytes = 0;
  std::multiset<std::size_t> cached;  // sizes of blocks kept for an allocation of just that size

  [[nodiscard]] std::uint64_t cached_bytes() const;
};

struct Device {
  int retained = 0;
  std::uint64_t memory_bytes = default_memory_bytes;
  std::uint64_t taken_bytes = 0;  // allocated, or reserved by a pool
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
  std::array<Device, device_count> devices;
  std::map<std::string, Injection> injections;
  std::map<int, int> attributes;
  std::map<CUdeviceptr, Allocation> allocations;
  std::map<CUdeviceptr, Allocation> registrations;
  std::map<CUmemoryPool, std::unique_ptr<Pool>> pools;
  std::map<CUstream, std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Stream>> destroyed_streams;
  std::map<CUevent, std::shared_ptr<Event>> events;
  std::set<CUstream> capturing;
  std::set<CUcontext> own_contexts;  // made beside the primary ones
  std::set<CUmodule> modules;
};

State& state();

// The result a driver function must return before doing anything: an injected one, "not
// initialized" before cuInit or in a forked child, else CUDA_SUCCESS.
CUresult enter(const char* function);

// This thread's current contexts, innermost last.
std::vector<CUcontext>& context_stack();
// A context's device; -1 for none.
int device_of(CUcontext context);
CUcontext context_of(int device);
// One more context of a device. Wants the lock.
CUcontext make_context(int device);

// Memory of a device, counted against its limit. Call with the lock held.
CUresult take(CUdeviceptr* address, std::size_t size_bytes, int device, Pool* pool);
CUresult give(CUdeviceptr address);
void trim(Pool& pool, std::uint64_t bytes_to_keep);
// Queues work on a stream, by its handle; the two default streams are made at their first use.
CUresult push(CUstream handle, Stream::Work work);
// Whether all of a range lies in one allocation of device memory.
bool is_device_range(CUdeviceptr address, std::size_t size_bytes);
// The allocation or registration around an address, or null. Call with the lock held.
const std::pair<const CUdeviceptr, Allocation>* around(
    const std::map<CUdeviceptr, Allocation>& ranges, CUdeviceptr address);

}  // namespace fake_cuda
