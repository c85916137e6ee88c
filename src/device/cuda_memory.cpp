// Device memory: pooled allocation ordered on a stream of its own and made usable at once.
#include "device/cuda_memory.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include <algorithm>
#include <array>
#include <chrono>

namespace hippogriff {
namespace {

constexpr auto allocation_timeout = std::chrono::seconds(10);

std::string full_detail(std::size_t asked_bytes, const DeviceMemory& memory) {
  return "asked for " + std::to_string(asked_bytes) + " bytes, " +
         std::to_string(memory.free_bytes) + " of " + std::to_string(memory.total_bytes) +
         " are free";
}

}  // namespace

std::optional<CudaPlace> locate_cuda_memory(const CudaDriver& driver,
                                            DeviceAddress address) noexcept {
  unsigned type = 0;
  unsigned managed = 0;
  unsigned mapped = 0;
  int ordinal = -1;
  CUdeviceptr start = 0;
  std::size_t size_bytes = 0;
  std::array attributes{
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_MAPPED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
  };
  std::array<void*, attributes.size()> values{
      &type, &managed, &mapped, &ordinal, &start, &size_bytes};
  if (driver.pointer_get_attributes(static_cast<unsigned>(attributes.size()),
                                    attributes.data(),
                                    values.data(),
                                    address.value) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  // A reserved address range (torch's expandable segments) may have parts without memory behind.
  const bool on_device = managed != 0 || (type == CU_MEMORYTYPE_DEVICE && mapped != 0);
  if (!on_device || ordinal < 0 || size_bytes == 0) {
    return std::nullopt;
  }
  return CudaPlace{{{start}, size_bytes}, ordinal};
}

CudaMemory::CudaMemory(const CudaContext& context) : context_(context) {
  std::size_t total_bytes = 0;
  context_.check(context_.driver().device_total_mem(&total_bytes, context_.device()),
                 "ask for the device's memory size");
  total_bytes_ = total_bytes;
  if (context_.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) != 0) {
    try {
      create_pool();
    } catch (...) {
      destroy_pool();
      throw;
    }
  }
}

CudaMemory::~CudaMemory() {
  while (!sizes_.empty()) {
    release({sizes_.begin()->first});
  }
  if (context_.driver().usable()) {
    destroy_pool();
  }
}

void CudaMemory::create_pool() {
  const CudaScope scope(context_);
  stream_ = std::make_unique<CudaStream>(context_);
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = context_.device();
  const CudaDriver& driver = context_.driver();
  context_.check(driver.mem_pool_create(&pool_, &properties), "create memory pool");
  // Nobody synchronizes our stream, so the threshold is kept by trimming; it must not be lower.
  cuuint64_t kept_bytes = cuda_pool_kept_bytes;
  context_.check(
      driver.mem_pool_set_attribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept_bytes),
      "set the memory pool's release threshold");
}

void CudaMemory::destroy_pool() noexcept {
  if (pool_ != nullptr) {
    static_cast<void>(context_.driver().mem_pool_destroy(pool_));
  }
}

std::uint64_t CudaMemory::pool_value(CUmemPool_attribute attribute) const {
  cuuint64_t value = 0;
  if (pool_ != nullptr) {
    context_.check(context_.driver().mem_pool_get_attribute(pool_, attribute, &value),
                   "ask the memory pool");
  }
  return value;
}

DeviceMemory CudaMemory::amount() const {
  const CudaScope scope(context_);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  context_.check(context_.driver().mem_get_info(&free_bytes, &total_bytes),
                 "ask for free device memory");
  return {std::min<std::uint64_t>(free_bytes + unused_pool_bytes(), total_bytes), total_bytes};
}

CUresult CudaMemory::try_allocate(CUdeviceptr* address, std::size_t size_bytes) const {
  const CudaDriver& driver = context_.driver();
  return pool_ == nullptr ? driver.mem_alloc(address, size_bytes)
                          : driver.mem_alloc_from_pool_async(address, size_bytes, pool_, stream());
}

void CudaMemory::fail_full(std::size_t size_bytes) const {
  Failure failure;
  failure.status = Status::out_of_device_memory;
  failure.operation = "allocate device memory";
  failure.object = context_.name();
  failure.device_status = CUDA_ERROR_OUT_OF_MEMORY;
  failure.detail = full_detail(size_bytes, amount());
  throw Error(std::move(failure));
}

DeviceAddress CudaMemory::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) {
    throw_invalid("allocate device memory", "the size is 0");
  }
  const CudaScope scope(context_);
  CUdeviceptr address = 0;
  // Sizes beyond the device overflow in the driver, which then calls them invalid.
  CUresult result =
      size_bytes > total_bytes_ ? CUDA_ERROR_OUT_OF_MEMORY : try_allocate(&address, size_bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && pool_ != nullptr && size_bytes <= total_bytes_) {
    // What the pool keeps may be in pieces too small for this.
    context_.check(context_.driver().mem_pool_trim_to(pool_, 0), "trim the memory pool");
    result = try_allocate(&address, size_bytes);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    fail_full(size_bytes);
  }
  context_.check(result, "allocate device memory");
  try {
    wait_until_usable();
    const std::lock_guard lock(mutex_);
    sizes_.emplace(address, size_bytes);
  } catch (...) {
    free_on_device(address);
    throw;
  }
  return {address};
}

void CudaMemory::wait_until_usable() const {
  if (pool_ != nullptr && !wait_for(*stream_, allocation_timeout)) {
    context_.fail(CUDA_ERROR_TIMEOUT, "wait for allocated device memory");
  }
}

CUstream CudaMemory::stream() const {
  return static_cast<CUstream>(stream_->native_handle());
}

void CudaMemory::free_on_device(CUdeviceptr address) const noexcept {
  const CudaDriver& driver = context_.driver();
  if (pool_ == nullptr) {
    static_cast<void>(driver.mem_free(address));
    return;
  }
  static_cast<void>(driver.mem_free_async(address, stream()));
}

std::uint64_t CudaMemory::unused_pool_bytes() const {
  const std::uint64_t used_bytes = pool_value(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
  const std::uint64_t reserved_bytes = pool_value(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  return reserved_bytes > used_bytes ? reserved_bytes - used_bytes : 0;
}

void CudaMemory::trim_pool() const {
  // Trimming never goes below what it is told to keep, so one large unused block survives the first
  // attempt; the second gives it back whole.
  for (const std::uint64_t kept_bytes : {cuda_pool_kept_bytes, std::uint64_t{0}}) {
    if (unused_pool_bytes() <= cuda_pool_kept_bytes) {
      return;
    }
    const std::uint64_t used_bytes = pool_value(CU_MEMPOOL_ATTR_USED_MEM_CURRENT);
    context_.check(context_.driver().mem_pool_trim_to(pool_, used_bytes + kept_bytes),
                   "trim the memory pool");
  }
}

void CudaMemory::release(DeviceAddress address) noexcept {
  {
    const std::lock_guard lock(mutex_);
    const bool known = sizes_.erase(address.value) == 1;
    HIPPO_ASSERT(known);
  }
  // Driver failures here mean a dead context, which every later call reports.
  const CudaDriver& driver = context_.driver();
  if (!driver.usable()) {
    return;
  }
  try {
    const CudaScope scope(context_);
    free_on_device(address.value);
    if (pool_ != nullptr && stream_->idle()) {
      trim_pool();
    }
  } catch (const Error&) {
    return;
  }
}

std::optional<AllocationInfo> CudaMemory::find(DeviceAddress address) const {
  {
    const std::lock_guard lock(mutex_);
    auto after = sizes_.upper_bound(address.value);
    if (after != sizes_.begin()) {
      const auto& [base, size_bytes] = *--after;
      if (address.value - base < size_bytes) {
        return AllocationInfo{{base}, size_bytes};
      }
    }
  }
  const CudaScope scope(context_);
  const auto place = locate_cuda_memory(context_.driver(), address);
  if (!place || place->device_index != context_.device()) {
    return std::nullopt;
  }
  return place->allocation;
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
