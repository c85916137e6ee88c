// The driver says what a pool reserves; between two looks the books keep the highest use.
#include "shim/pool.hpp"

#include "shim/accounts.hpp"
#include "shim/ledger.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace hippogriff::shim {
namespace {

// The device whose default or current pool this is; `otherwise` when it is nobody's.
int device_of_pool(CUmemoryPool handle, int otherwise) noexcept {
  int count = 0;
  if (HIPPO_REAL(cuDeviceGetCount)(&count) != CUDA_SUCCESS) {
    return otherwise;
  }
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    CUdevice device = 0;
    CUmemoryPool pool = nullptr;
    if (HIPPO_REAL(cuDeviceGet)(&device, ordinal) != CUDA_SUCCESS) {
      continue;
    }
    if ((HIPPO_REAL(cuDeviceGetDefaultMemPool)(&pool, device) == CUDA_SUCCESS && pool == handle) ||
        (HIPPO_REAL(cuDeviceGetMemPool)(&pool, device) == CUDA_SUCCESS && pool == handle)) {
      return device;
    }
  }
  return otherwise;
}

}  // namespace

int counted_device(const CUmemLocation& location) noexcept {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1;
}

bool Pool::take(std::uint64_t size_bytes) noexcept {
  if (!is_counted()) {
    return true;
  }
  std::uint64_t missing_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    if (size_bytes > UINT64_MAX - used_bytes_) {
      return false;
    }
    used_bytes_ += size_bytes;
    ++generation_;
    const std::uint64_t covered_bytes = counted_bytes_ + pending_bytes_;
    missing_bytes = used_bytes_ > covered_bytes ? used_bytes_ - covered_bytes : 0;
    pending_bytes_ += missing_bytes;
  }
  // Without the lock: this may wait until another thread frees memory of this pool.
  if (missing_bytes == 0) {
    return true;
  }
  const bool taken = take_bytes(device_, missing_bytes);
  const std::lock_guard lock(mutex_);
  pending_bytes_ -= missing_bytes;
  if (taken) {
    counted_bytes_ += missing_bytes;
  } else {
    drop(size_bytes);
  }
  return taken;
}

void Pool::untake(std::uint64_t size_bytes) noexcept {
  free(size_bytes);
  settle();
}

void Pool::free(std::uint64_t size_bytes) noexcept {
  if (!is_counted()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  drop(size_bytes);
}

void Pool::drop(std::uint64_t size_bytes) noexcept {
  used_bytes_ -= size_bytes;
  ++generation_;
  if (closed_) {
    keep(0);
  }
}

void Pool::keep(std::uint64_t size_bytes) noexcept {
  const std::uint64_t kept_bytes =
      std::max(used_bytes_ - pending_bytes_, std::min(counted_bytes_, size_bytes));
  ledger().give(device_, counted_bytes_ - kept_bytes);
  counted_bytes_ = kept_bytes;
}

bool Pool::reserved_bytes(std::uint64_t* size_bytes) const noexcept {
  cuuint64_t reserved = 0;
  const CUresult result = handle_ == nullptr
                              ? HIPPO_REAL(cuDeviceGetGraphMemAttribute)(
                                    device_, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved)
                              : HIPPO_REAL(cuMemPoolGetAttribute)(
                                    handle_, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
  *size_bytes = reserved;
  return result == CUDA_SUCCESS;
}

void Pool::settle() noexcept {
  // Another thread's allocation and free may fall between the driver's answer and our sum; then
  // what the driver reserved for it is in neither.
  constexpr int attempts = 16;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    std::uint64_t generation = 0;
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || counted_bytes_ + pending_bytes_ == used_bytes_) {
        return;
      }
      generation = generation_;
    }
    std::uint64_t reserved = 0;
    if (!reserved_bytes(&reserved) || give_unused(reserved, generation)) {
      return;
    }
  }
}

bool Pool::give_unused(std::uint64_t reserved_bytes, std::uint64_t generation) noexcept {
  const std::lock_guard lock(mutex_);
  if (generation != generation_) {
    return false;
  }
  if (!closed_) {
    keep(reserved_bytes);
  }
  return true;
}

void Pool::trim() noexcept {
  if (!is_counted()) {
    return;
  }
  if (handle_ == nullptr) {
    HIPPO_REAL(cuDeviceGraphMemTrim)(device_);
  } else {
    HIPPO_REAL(cuMemPoolTrimTo)(handle_, 0);
  }
  settle();
}

void Pool::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  if (is_counted()) {
    keep(0);
  }
}

void Pools::add(CUmemoryPool handle, int device) noexcept {
  try {
    auto pool = std::make_shared<Pool>(device, handle);
    const std::lock_guard lock(mutex_);
    pools_.try_emplace(handle, std::move(pool));
  } catch (const std::bad_alloc&) {
    return;  // found again when it is used
  }
}

std::shared_ptr<Pool> Pools::known(CUmemoryPool handle) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = pools_.find(handle);
  return found == pools_.end() ? nullptr : found->second;
}

std::shared_ptr<Pool> Pools::find(CUmemoryPool handle, int current_device) noexcept {
  if (std::shared_ptr<Pool> pool = known(handle); pool != nullptr) {
    return pool;
  }
  add(handle, device_of_pool(handle, current_device));
  return known(handle);
}

std::shared_ptr<Pool> Pools::current(int device) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = current_.find(device); found != current_.end()) {
      return found->second;
    }
  }
  CUmemoryPool handle = nullptr;
  if (HIPPO_REAL(cuDeviceGetMemPool)(&handle, device) != CUDA_SUCCESS) {
    return nullptr;
  }
  std::shared_ptr<Pool> pool = find(handle, device);
  try {
    const std::lock_guard lock(mutex_);
    current_[device] = pool;
  } catch (const std::bad_alloc&) {
    return pool;  // asked again next time
  }
  return pool;
}

std::shared_ptr<Pool> Pools::graph_memory(int device) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Pool>& pool = graphs_[device];
    if (pool == nullptr) {
      pool = std::make_shared<Pool>(device, nullptr);
    }
    return pool;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Pools::forget_current() noexcept {
  const std::lock_guard lock(mutex_);
  current_.clear();
}

std::shared_ptr<Pool> Pools::remove(CUmemoryPool handle) noexcept {
  const std::lock_guard lock(mutex_);
  current_.clear();
  const auto found = pools_.find(handle);
  if (found == pools_.end()) {
    return nullptr;
  }
  std::shared_ptr<Pool> pool = std::move(found->second);
  pools_.erase(found);
  return pool;
}

void Pools::restore(CUmemoryPool handle, const std::shared_ptr<Pool>& pool) noexcept {
  try {
    const std::lock_guard lock(mutex_);
    pools_.try_emplace(handle, pool);
  } catch (const std::bad_alloc&) {
    return;  // found again when it is used
  }
}

std::vector<std::shared_ptr<Pool>> Pools::of_device(int device) noexcept {
  std::vector<std::shared_ptr<Pool>> found;
  try {
    const std::lock_guard lock(mutex_);
    if (const auto graphs = graphs_.find(device); graphs != graphs_.end()) {
      found.push_back(graphs->second);
    }
    for (const auto& [handle, pool] : pools_) {
      if (pool->device() == device) {
        found.push_back(pool);
      }
    }
  } catch (const std::bad_alloc&) {
    return found;
  }
  return found;
}

}  // namespace hippogriff::shim
