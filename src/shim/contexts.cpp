// Finds a thread's device in a few nanoseconds, and contexts that nobody told us of.
#include "shim/contexts.hpp"

#include "shim/accounts.hpp"
#include "shim/ledger.hpp"

#include <atomic>
#include <cstdint>
#include <new>

namespace hippogriff::shim {
namespace {

// Grows whenever a context or a stream ends: its address may then be another's.
std::atomic<std::uint64_t>& epoch() noexcept {
  static constinit std::atomic<std::uint64_t> counter{1};
  return counter;
}

struct LastPlace {
  CUcontext context = nullptr;
  int device = 0;
  std::uint64_t epoch = 0;
};

struct LastStream {
  CUstream stream = nullptr;
  Place place;
  std::uint64_t epoch = 0;
};

LastPlace& last_place() noexcept {
  static constinit thread_local LastPlace last;
  return last;
}

LastStream& last_stream() noexcept {
  static constinit thread_local LastStream last;
  return last;
}

bool is_primary(CUcontext context, CUdevice device) noexcept {
  // Else another thread's release might take ours for a user of the context.
  const std::lock_guard lock(accounts().contexts.primary_mutex);
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (HIPPO_REAL(cuDevicePrimaryCtxGetState)(device, &flags, &active) != CUDA_SUCCESS ||
      active == 0 || HIPPO_REAL(cuDevicePrimaryCtxRetain)(&primary, device) != CUDA_SUCCESS) {
    return false;
  }
  HIPPO_REAL(cuDevicePrimaryCtxRelease_v2)(device);
  return primary == context;
}

// Of a context that may not be current: pushing it is the one way to ask.
bool device_of(CUcontext context, CUdevice* device) noexcept {
  CUcontext current = nullptr;
  if (HIPPO_REAL(cuCtxGetCurrent)(&current) == CUDA_SUCCESS && current == context) {
    return HIPPO_REAL(cuCtxGetDevice)(device) == CUDA_SUCCESS;
  }
  if (HIPPO_REAL(cuCtxPushCurrent_v2)(context) != CUDA_SUCCESS) {
    return false;
  }
  const CUresult result = HIPPO_REAL(cuCtxGetDevice)(device);
  HIPPO_REAL(cuCtxPopCurrent_v2)(&current);
  return result == CUDA_SUCCESS;
}

// Takes a context into the books that was made behind our back.
Standing discover(CUcontext handle, int* device) noexcept {
  CUdevice found = 0;
  if (!device_of(handle, &found)) {
    return Standing::nowhere;
  }
  *device = found;
  const std::uint64_t size_bytes = ledger().context_bytes(found);
  if (!take_bytes(found, size_bytes)) {
    return Standing::refused;
  }
  if (!accounts().contexts.add(handle, {found, is_primary(handle, found), 0, size_bytes})) {
    ledger().give(found, size_bytes);
  }
  return Standing::found;
}

}  // namespace

bool Contexts::add(CUcontext handle, const Context& context) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    return contexts_.try_emplace(handle, context).second;
  } catch (const std::bad_alloc&) {
    return false;  // found again at the next allocation
  }
}

std::optional<Context> Contexts::find(CUcontext handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(handle);
  return found == contexts_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Context> Contexts::remove(CUcontext handle) noexcept {
  forget_places();
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(handle);
  if (found == contexts_.end()) {
    return std::nullopt;
  }
  const Context context = found->second;
  contexts_.erase(found);
  return context;
}

std::optional<CUcontext> Contexts::primary_of(int device) noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, context] : contexts_) {
    if (context.primary && context.device == device) {
      return handle;
    }
  }
  return std::nullopt;
}

int Contexts::attach(CUcontext handle, int change) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(handle);
  if (found == contexts_.end()) {
    return 0;
  }
  if (change < 0 && found->second.attached == 0) {
    return -1;
  }
  found->second.attached += static_cast<unsigned>(change);
  return static_cast<int>(found->second.attached);
}

void forget_places() noexcept {
  epoch().fetch_add(1, std::memory_order_acq_rel);
}

Standing place_in(CUcontext context, Place* place) noexcept {
  LastPlace& last = last_place();
  const std::uint64_t now = epoch().load(std::memory_order_acquire);
  if (last.context != context || last.epoch != now) {
    int device = 0;
    if (const std::optional<Context> known = accounts().contexts.find(context)) {
      device = known->device;
    } else if (const Standing standing = discover(context, &device); standing != Standing::found) {
      *place = {context, device};
      return standing;
    }
    last = {context, device, now};
  }
  *place = {context, last.device};
  return Standing::found;
}

Standing current_place(Place* place) noexcept {
  CUcontext context = nullptr;
  if (HIPPO_REAL(cuCtxGetCurrent)(&context) != CUDA_SUCCESS || context == nullptr) {
    return Standing::nowhere;
  }
  return place_in(context, place);
}

Standing stream_place(CUstream stream, Place* place) noexcept {
  if (reinterpret_cast<std::uintptr_t>(stream) <= 2) {
    return current_place(place);
  }
  LastStream& last = last_stream();
  const std::uint64_t now = epoch().load(std::memory_order_acquire);
  if (last.stream == stream && last.epoch == now) {
    *place = last.place;
    return Standing::found;
  }
  CUcontext context = nullptr;
  if (HIPPO_REAL(cuStreamGetCtx)(stream, &context) != CUDA_SUCCESS || context == nullptr) {
    return current_place(place);
  }
  const Standing standing = place_in(context, place);
  if (standing == Standing::found) {
    last = {stream, *place, now};
  }
  return standing;
}

}  // namespace hippogriff::shim
