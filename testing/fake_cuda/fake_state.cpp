// The fake driver's memory, its failures to inject, and the functions that tests steer it by.
#include "testing/fake_cuda/fake_state.hpp"

#include "testing/fake_cuda/fake_cuda.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string_view>

#define HIPPO_FAKE_API extern "C" __attribute__((visibility("default")))

namespace fake_cuda {
namespace {

std::uint64_t memory_limit_bytes() {
  const char* text = std::getenv("HIPPOGRIFF_FAKE_CUDA_MEMORY");  // NOLINT(concurrency-mt-unsafe)
  return text == nullptr ? default_memory_bytes : std::strtoull(text, nullptr, 10);
}

std::string_view without_version(std::string_view function) {
  return function.ends_with("_v2") ? function.substr(0, function.size() - 3) : function;
}

}  // namespace

State& state() {
  // Never destroyed: programs may call the driver from their own static destructors.
  static State& instance = *[] {
    auto* made = new State;
    for (Device& device : made->devices) {
      device.memory_bytes = memory_limit_bytes();
    }
    return made;
  }();
  return instance;
}

CUresult enter(const char* function) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const std::string name(without_version(function));
  const auto found = all.injections.find(name);
  if (found != all.injections.end()) {
    const CUresult result = found->second.result;
    if (found->second.calls_left == 0) {
      return result;
    }
    if (--found->second.calls_left == 0) {
      all.injections.erase(found);
      return result;
    }
  }
  const bool before_init = name == "cuInit" || name == "cuDriverGetVersion";
  return before_init || all.process == ::getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

std::vector<CUcontext>& context_stack() {
  thread_local std::vector<CUcontext> stack;
  return stack;
}

constexpr std::uintptr_t own_contexts_end = 4096;

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(&state().devices.at(static_cast<std::size_t>(device)));
}

int device_of(CUcontext context) {
  for (int device = 0; device < device_count; ++device) {
    if (context == context_of(device)) {
      return device;
    }
  }
  const auto number = reinterpret_cast<std::uintptr_t>(context);
  return number < own_contexts_end ? static_cast<int>(number % device_count) : -1;
}

CUcontext make_context(int device) {
  static std::uintptr_t made = 0;
  // A mere name: small numbers are no addresses.
  const std::uintptr_t number = ++made * device_count + static_cast<std::uintptr_t>(device);
  const auto context = reinterpret_cast<CUcontext>(number);  // NOLINT(performance-no-int-to-ptr)
  state().own_contexts.insert(context);
  return context;
}

const std::pair<const CUdeviceptr, Allocation>* around(
    const std::map<CUdeviceptr, Allocation>& ranges, CUdeviceptr address) {
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) {
    return nullptr;
  }
  --after;
  return address - after->first < after->second.size_bytes ? &*after : nullptr;
}

CUstreamCaptureMode& capture_mode() {
  thread_local CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  return mode;
}

CUresult spoil_captures() {
  State& all = state();
  all.spoiled_count += static_cast<int>(all.capturing.size());
  return all.capturing.empty() ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult take(CUdeviceptr* address, std::size_t size_bytes, int device) {
  State& all = state();
  Device& on = all.devices.at(static_cast<std::size_t>(device));
  if (size_bytes > on.memory_bytes - on.taken_bytes) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* memory = ::mmap(nullptr,
                        size_bytes,
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
  if (memory == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  on.taken_bytes += size_bytes;
  *address = reinterpret_cast<CUdeviceptr>(memory);
  all.allocations[*address] = {size_bytes, device};
  return CUDA_SUCCESS;
}

CUresult give(CUdeviceptr address) {
  State& all = state();
  const auto found = all.allocations.find(address);
  if (found == all.allocations.end() || found->second.memory != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Allocation allocation = found->second;
  all.allocations.erase(found);
  ::munmap(reinterpret_cast<void*>(address), allocation.size_bytes);
  all.devices.at(static_cast<std::size_t>(allocation.device)).taken_bytes -= allocation.size_bytes;
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

using fake_cuda::state;
using fake_cuda::State;

HIPPO_FAKE_API void fake_cuda_fail(const char* function, int nth, int result) {
  const std::lock_guard lock(state().mutex);
  state().injections[function] = {nth, static_cast<CUresult>(result)};
}

HIPPO_FAKE_API void fake_cuda_set(const char* what, int value) {
  const std::lock_guard lock(state().mutex);
  constexpr std::string_view attribute = "attribute ";
  const std::string_view name = what;
  if (name == "driver_version") {
    state().driver_version = value;
  } else if (name == "context_ms") {
    state().context_ms = value;
  } else if (name.starts_with(attribute)) {
    state().attributes[static_cast<int>(std::strtol(what + attribute.size(), nullptr, 10))] = value;
  } else {
    std::abort();
  }
}

HIPPO_FAKE_API int fake_cuda_count(const char* what) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const std::string_view name = what;
  int contexts = 0;
  for (const auto& device : all.devices) {
    contexts += device.retained;
  }
  const std::map<std::string_view, std::uint64_t> counts{
      {"streams",
       all.streams.size() - all.streams.count(CU_STREAM_LEGACY) -
           all.streams.count(CU_STREAM_PER_THREAD)},
      {"events", all.events.size()},
      {"allocations", all.allocations.size()},
      {"registrations", all.registrations.size()},
      {"reservations", all.reservations.size()},
      {"physical", all.physical.size()},
      {"spoiled_captures", static_cast<std::uint64_t>(all.spoiled_count)},
      {"modules", all.modules.size()},
      {"contexts", static_cast<std::uint64_t>(contexts) + all.own_contexts.size()},
      {"own_contexts", all.own_contexts.size()},
  };
  return static_cast<int>(counts.at(name));
}

HIPPO_FAKE_API void fake_cuda_set_capturing(void* stream, int capturing) {
  const std::lock_guard lock(state().mutex);
  const auto handle = static_cast<CUstream>(stream);
  if (capturing != 0) {
    state().capturing.insert(handle);
  } else {
    state().capturing.erase(handle);
  }
}

HIPPO_FAKE_API void* fake_cuda_managed(std::size_t size_bytes, int device) {
  const std::lock_guard lock(state().mutex);
  CUdeviceptr address = 0;
  if (fake_cuda::take(&address, size_bytes, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  state().allocations[address].managed = true;
  return reinterpret_cast<void*>(address);
}

HIPPO_FAKE_API void fake_cuda_reset() {
  std::vector<std::shared_ptr<fake_cuda::Stream>> destroyed;
  {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    all.injections.clear();
    all.attributes.clear();
    all.capturing.clear();
    all.spoiled_count = 0;
    all.driver_version = 13000;
    all.context_ms = 0;
    destroyed.swap(all.destroyed_streams);
    std::vector<CUdeviceptr> managed;
    for (const auto& [address, allocation] : all.allocations) {
      if (allocation.managed) {
        managed.push_back(address);
      }
    }
    for (const CUdeviceptr address : managed) {
      fake_cuda::give(address);
    }
  }
  for (const auto& stream : destroyed) {
    stream->stop();
  }
}
