// Sums, addresses that are used again at once, and what dies with a context.
#include "testing/null_cuda/null_state.hpp"

#include "testing/null_cuda/shared_gpu.hpp"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>

namespace null_cuda {

using hippogriff::testing::SharedGpu;

State& state() {
  // A fork may happen while another thread is in here: the child must find the lock free.
  static auto* const whole = [] {
    ::pthread_atfork([] { state().mutex.lock(); },
                     [] { state().mutex.unlock(); },
                     [] { state().mutex.unlock(); });
    return new State;
  }();
  return *whole;
}

State::State() {
  for (int ordinal = 0; ordinal < null_device_count; ++ordinal) {
    pools.push_back(std::make_unique<Pool>(Pool{.device = ordinal}));
    Device& device = devices.at(static_cast<std::size_t>(ordinal));
    device.default_pool = reinterpret_cast<CUmemoryPool>(pools.back().get());
    device.current_pool = device.default_pool;
  }
}

std::vector<CUcontext>& context_stack() {
  static thread_local std::vector<CUcontext> stack;
  return stack;
}

CUcontext primary_context(int device) {
  return reinterpret_cast<CUcontext>(&state().devices.at(static_cast<std::size_t>(device)));
}

CUresult current(CUcontext* context, int* device) {
  if (context_stack().empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = context_stack().back();
  if (const auto own = state().contexts.find(*context); own != state().contexts.end()) {
    *device = own->second;
    return CUDA_SUCCESS;
  }
  for (int ordinal = 0; ordinal < null_device_count; ++ordinal) {
    if (primary_context(ordinal) == *context) {
      state().devices.at(static_cast<std::size_t>(ordinal)).active = true;
      *device = ordinal;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::uint64_t held_bytes(int device) {
  const State& books = state();
  const Device& facts = books.devices.at(static_cast<std::size_t>(device));
  std::uint64_t sum = facts.graph_reserved_bytes + (facts.active ? books.context_bytes : 0);
  sum += books.growing_bytes;
  for (const auto& [context, ordinal] : books.contexts) {
    sum += ordinal == device ? books.context_bytes : 0;
  }
  for (const auto& [address, block] : books.blocks) {
    sum += block.pool == nullptr && block.device == device ? block.size_bytes : 0;
  }
  for (const auto& pool : books.pools) {
    sum += pool->device == device ? pool->reserved_bytes : 0;
  }
  std::vector<const Physical*> alive;
  for (const auto& [handle, physical] : books.handles) {
    alive.push_back(physical.get());
  }
  for (const auto& [address, mapping] : books.mappings) {
    alive.push_back(mapping.second.get());
  }
  std::sort(alive.begin(), alive.end());
  alive.erase(std::unique(alive.begin(), alive.end()), alive.end());
  for (const Physical* physical : alive) {
    sum += physical->device == device ? physical->size_bytes : 0;
  }
  return sum;
}

CUresult admit(int device, std::uint64_t size_bytes) {
  State& books = state();
  ++books.allocations;
  if (books.failures > 0) {
    --books.failures;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::uint64_t held = held_bytes(device);
  bool fits = size_bytes <= null_device_bytes - held;
  if (SharedGpu* const shared = SharedGpu::of_process(); fits && shared != nullptr) {
    fits =
        shared->hold(static_cast<std::uint64_t>(::getpid()), held + size_bytes, null_device_bytes);
  }
  return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult admit_context(int device) {
  State& books = state();
  if (SharedGpu::of_process() == nullptr) {
    return admit(device, books.context_bytes);
  }
  constexpr std::uint64_t steps = 4;
  CUresult result = CUDA_SUCCESS;
  for (std::uint64_t step = 0; step < steps && result == CUDA_SUCCESS; ++step) {
    ::usleep(2000);
    result = admit(device, books.context_bytes / steps);
    books.growing_bytes += result == CUDA_SUCCESS ? books.context_bytes / steps : 0;
  }
  books.growing_bytes = 0;
  if (result != CUDA_SUCCESS) {
    tell_shared(device);
  }
  return result;
}

void tell_shared(int device) {
  if (SharedGpu* const shared = SharedGpu::of_process()) {
    shared->hold(static_cast<std::uint64_t>(::getpid()), held_bytes(device), null_device_bytes);
  }
}

std::uint64_t new_address() {
  State& books = state();
  if (books.free_addresses.empty()) {
    books.next_address += 512;
    return books.next_address;
  }
  const std::uint64_t address = books.free_addresses.back();
  books.free_addresses.pop_back();
  return address;
}

CUresult add_block(std::uint64_t* address, const Block& block) {
  if (block.size_bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::uint64_t needed = block.size_bytes;
  if (block.pool != nullptr) {
    const std::uint64_t used = block.pool->used_bytes + block.size_bytes;
    needed = used > block.pool->reserved_bytes ? used - block.pool->reserved_bytes : 0;
  }
  if (const CUresult result = admit(block.device, needed); result != CUDA_SUCCESS) {
    return result;
  }
  if (block.pool != nullptr) {
    block.pool->used_bytes += block.size_bytes;
    block.pool->reserved_bytes += needed;
  }
  *address = new_address();
  state().blocks[*address] = block;
  return CUDA_SUCCESS;
}

CUresult free_block(std::uint64_t address) {
  const auto found = state().blocks.find(address);
  if (found == state().blocks.end()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Pool* pool = found->second.pool;
  if (pool != nullptr) {
    pool->used_bytes -= found->second.size_bytes;
    if (pool->destroyed) {
      pool->reserved_bytes = pool->used_bytes;
    }
  }
  const int device = found->second.device;
  state().blocks.erase(found);
  state().free_addresses.push_back(address);
  tell_shared(device);
  return CUDA_SUCCESS;
}

void end_context(CUcontext context) {
  std::vector<std::uint64_t> dying;
  for (const auto& [address, block] : state().blocks) {
    if (block.pool == nullptr && block.context == context) {
      dying.push_back(address);
    }
  }
  for (const std::uint64_t address : dying) {
    free_block(address);
  }
}

void end_primary_context(int device) {
  Device& facts = state().devices.at(static_cast<std::size_t>(device));
  end_context(primary_context(device));
  facts.active = false;
  facts.graph_used_bytes = 0;
  facts.graph_reserved_bytes = 0;
  std::erase_if(state().executables,
                [device](const auto& entry) { return entry.second.first == device; });
  tell_shared(device);
}

}  // namespace null_cuda

using null_cuda::state;

extern "C" {
#pragma GCC visibility push(default)

std::uint64_t null_cuda_held(int device) {
  const std::lock_guard lock(state().mutex);
  return null_cuda::held_bytes(device);
}

std::uint64_t null_cuda_capture_questions() {
  const std::lock_guard lock(state().mutex);
  return state().capture_questions;
}

std::uint64_t null_cuda_allocations() {
  const std::lock_guard lock(state().mutex);
  return state().allocations;
}

void null_cuda_fail(int count) {
  const std::lock_guard lock(state().mutex);
  state().failures = count;
}

void null_cuda_context_bytes(std::uint64_t size_bytes) {
  const std::lock_guard lock(state().mutex);
  state().context_bytes = size_bytes;
}

void null_cuda_row_alignment(int size_bytes) {
  const std::lock_guard lock(state().mutex);
  state().row_alignment_bytes = static_cast<std::size_t>(size_bytes);
}

void null_cuda_version(int version, int private_addresses) {
  const std::lock_guard lock(state().mutex);
  state().version = version;
  state().private_addresses = private_addresses != 0;
}

void null_cuda_make_primary_current(int device) {
  const std::lock_guard lock(state().mutex);
  null_cuda::Device& facts = state().devices.at(static_cast<std::size_t>(device));
  ++facts.retained;
  facts.active = true;
  null_cuda::context_stack().push_back(null_cuda::primary_context(device));
}

const hippogriff::testing::Launch* null_cuda_last_launch() {
  return &state().launch;
}

float null_cuda_last_bias() {
  return state().bias;
}

const unsigned char* null_cuda_last_handle() {
  return reinterpret_cast<const unsigned char*>(state().handle.reserved);
}

#pragma GCC visibility pop
}  // extern "C"
