// Device memory: what is in use, and what was released while work may still use it.
#include "device/cuda_memory.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace hippogriff {
namespace {

// Of an idle device the event comes within microseconds; a busy one is not waited for.
constexpr auto release_timeout = std::chrono::milliseconds(1);

// Nothing runs any more in a context that has failed so.
bool ends_context(int status) {
  constexpr std::array ends{CUDA_ERROR_ILLEGAL_ADDRESS,
                            CUDA_ERROR_LAUNCH_TIMEOUT,
                            CUDA_ERROR_CONTEXT_IS_DESTROYED,
                            CUDA_ERROR_ASSERT,
                            CUDA_ERROR_HARDWARE_STACK_ERROR,
                            CUDA_ERROR_ILLEGAL_INSTRUCTION,
                            CUDA_ERROR_MISALIGNED_ADDRESS,
                            CUDA_ERROR_INVALID_ADDRESS_SPACE,
                            CUDA_ERROR_INVALID_PC,
                            CUDA_ERROR_LAUNCH_FAILED,
                            CUDA_ERROR_ECC_UNCORRECTABLE};
  return std::find(ends.begin(), ends.end(), static_cast<CUresult>(status)) != ends.end();
}

// What the driver answers while a stream captures a graph: it may do so a moment later.
bool is_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
         result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

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

// Allocates anew whenever released memory has become free; completed when that succeeded, failed
// otherwise than by a full device, or nothing is left to wait for.
class CudaMemory::Attempt final : public Event {
 public:
  Attempt(CudaMemory& memory, std::size_t size_bytes, DeviceAddress* address)
      : memory_(memory), size_bytes_(size_bytes), address_(address) {}

  [[nodiscard]] bool completed() override {
    const std::lock_guard lock(memory_.mutex_);
    if (refused_) {
      static_cast<void>(memory_.record_released());
    }
    memory_.collect();
    if (!refused_ || collected_count_ != memory_.collected_count_) {
      collected_count_ = memory_.collected_count_;
      result_ = memory_.take(size_bytes_, address_);
      refused_ = result_ == CUDA_ERROR_OUT_OF_MEMORY;
    }
    return !refused_ || memory_.all_over();
  }

  [[nodiscard]] CUresult result() const { return result_; }

 private:
  CudaMemory& memory_;
  const std::size_t size_bytes_;
  DeviceAddress* const address_;
  bool refused_ = false;
  std::uint64_t collected_count_ = 0;  // when it was tried last
  CUresult result_ = CUDA_ERROR_OUT_OF_MEMORY;
};

// Completed when all that was released is given back.
class CudaMemory::AllOver final : public Event {
 public:
  explicit AllOver(CudaMemory& memory) : memory_(memory) {}

  [[nodiscard]] bool completed() override {
    const std::lock_guard lock(memory_.mutex_);
    const CUresult result = memory_.record_released();
    if (result != CUDA_SUCCESS && !is_capture(result)) {
      memory_.context_.fail(result, "record the work that may use released memory");
    }
    memory_.collect();
    return memory_.all_over();
  }

 private:
  CudaMemory& memory_;
};

CudaMemory::CudaMemory(const CudaContext& context) : context_(context) {
  std::size_t total_bytes = 0;
  context_.check(context_.driver().device_total_mem(&total_bytes, context_.device()),
                 "ask for the device's memory size");
  total_bytes_ = total_bytes;
  if (CudaBlocks::supported(context_)) {
    blocks_.emplace(context_);
    slabs_.emplace(*blocks_);
  }
}

CudaMemory::~CudaMemory() {
  if (!context_.driver().usable()) {
    return;
  }
  if (!blocks_) {
    for (const auto& [address, allocation] : live_) {
      release_plain({address});
    }
    return;
  }
  released_.merge(live_);
  std::optional<CudaScope> scope;
  bool over = false;
  try {
    scope.emplace(context_);
    AllOver all(*this);
    over = wait_for(all, allocation_timeout);
  } catch (const Error& error) {
    over = ends_context(error.failure().device_status);
  } catch (const std::exception&) {
    over = false;
  }
  // Work that finds its memory unmapped ends the context, which others of the process may use.
  over ? blocks_->unmap_all() : blocks_->unmap_kept();
}

DeviceMemory CudaMemory::amount() {
  const CudaScope scope(context_);
  const std::lock_guard lock(mutex_);
  std::uint64_t ours_bytes = 0;
  if (blocks_) {
    collect();
    ours_bytes = blocks_->kept_bytes() + released_bytes_;
  }
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  context_.check(context_.driver().mem_get_info(&free_bytes, &total_bytes),
                 "ask for free device memory");
  return {std::min<std::uint64_t>(free_bytes + ours_bytes, total_bytes), total_bytes};
}

void CudaMemory::fail_full(std::size_t size_bytes) {
  Failure failure;
  failure.status = Status::out_of_device_memory;
  failure.operation = "allocate device memory";
  failure.object = context_.name();
  failure.device_status = CUDA_ERROR_OUT_OF_MEMORY;
  failure.detail = full_detail(size_bytes, amount());
  throw Error(std::move(failure));
}

DeviceAddress CudaMemory::allocate(std::size_t size_bytes, std::chrono::nanoseconds patience) {
  if (size_bytes == 0) {
    throw_invalid("allocate device memory", "the size is 0");
  }
  const CudaScope scope(context_);
  DeviceAddress address;
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  // Sizes beyond the device overflow in the driver, which then calls them invalid.
  if (size_bytes <= total_bytes_) {
    result = blocks_ ? allocate_block(size_bytes, patience, &address)
                     : allocate_plain(size_bytes, &address);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    fail_full(size_bytes);
  }
  context_.check(result, "allocate device memory");
  return address;
}

CUresult CudaMemory::allocate_block(std::size_t size_bytes,
                                    std::chrono::nanoseconds patience,
                                    DeviceAddress* address) {
  Attempt attempt(*this, size_bytes, address);
  static_cast<void>(wait_for(attempt, patience));
  return attempt.result();
}

CUresult CudaMemory::take(std::size_t size_bytes, DeviceAddress* address) {
  Allocations made;  // its memory comes first, so that nothing can fail behind the driver
  made.emplace(0, Allocation{size_bytes, {}});
  CudaBlock& block = made.begin()->second.block;
  const CUresult result = size_bytes <= CudaSlabs::piece_bytes_max
                              ? slabs_->take(size_bytes, &block)
                              : blocks_->take(size_bytes, &block);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  *address = {block.address};
  auto entry = made.extract(made.begin());
  entry.key() = address->value;
  live_.insert(std::move(entry));
  return CUDA_SUCCESS;
}

CUresult CudaMemory::allocate_plain(std::size_t size_bytes, DeviceAddress* address) {
  CUdeviceptr made = 0;
  const CUresult result = context_.driver().mem_alloc(&made, size_bytes);
  if (result != CUDA_SUCCESS) {
    return result;
  }
  try {
    const std::lock_guard lock(mutex_);
    live_.emplace(made, Allocation{size_bytes, {made, size_bytes}});
  } catch (...) {
    static_cast<void>(context_.driver().mem_free(made));
    throw;
  }
  *address = {made};
  return CUDA_SUCCESS;
}

void CudaMemory::release(DeviceAddress address) noexcept {
  if (!context_.driver().usable()) {  // a forked child, whose parent may have had the lock
    return;
  }
  bool much = false;
  bool awaits = false;
  {
    const std::lock_guard lock(mutex_);
    auto entry = live_.extract(address.value);
    HIPPO_ASSERT(!entry.empty());
    if (blocks_) {
      released_bytes_ += entry.mapped().block.size_bytes;
      released_.insert(std::move(entry));
      much = released_bytes_ > cuda_kept_bytes_max;
      awaits = !batches_.empty();
    }
  }
  if (!blocks_) {
    release_plain(address);
  } else if (much) {
    settle();
  } else if (awaits) {
    look();
  }
}

void CudaMemory::look() noexcept {
  // As in settle().
  try {
    const CudaScope scope(context_);
    const std::lock_guard lock(mutex_);
    collect();
  } catch (const std::exception&) {
    return;
  }
}

void CudaMemory::release_plain(DeviceAddress address) const noexcept {
  // Driver failures here mean a dead context, which every later call reports.
  try {
    const CudaScope scope(context_);
    static_cast<void>(context_.driver().mem_free(address.value));
  } catch (const Error&) {
    return;
  }
}

void CudaMemory::settle() noexcept {
  // What fails here is tried again by every later call, and reported there.
  try {
    const CudaScope scope(context_);
    bool idle = false;
    {
      const std::lock_guard lock(mutex_);
      collect();
      idle = batches_.empty();
      if (record_released() != CUDA_SUCCESS) {
        return;
      }
    }
    // A device that is busy with work before an earlier release is so still.
    AllOver all(*this);
    static_cast<void>(wait_for(all, idle ? release_timeout : std::chrono::milliseconds(0)));
  } catch (const std::exception&) {
    return;
  }
}

CUresult CudaMemory::record_released() {
  if (released_.empty()) {
    return CUDA_SUCCESS;
  }
  std::list<Batch> fresh;
  fresh.emplace_back(context_);
  const CUresult result =
      context_.driver().ctx_record_event(context_.handle(), fresh.front().event.handle());
  if (result == CUDA_SUCCESS) {
    fresh.front().allocations.swap(released_);
    released_bytes_ = 0;
    batches_.splice(batches_.end(), fresh);
  }
  return result;
}

void CudaMemory::collect() {
  if (batches_.empty()) {
    return;
  }
  while (!batches_.empty() && batches_.front().event.completed()) {
    for (const auto& [address, allocation] : batches_.front().allocations) {
      give(allocation.block);
    }
    batches_.pop_front();
    ++collected_count_;
  }
}

void CudaMemory::give(const CudaBlock& block) noexcept {
  if (block.size_bytes <= CudaSlabs::piece_bytes_max) {
    slabs_->give(block);
  } else {
    blocks_->give(block);
  }
}

std::optional<AllocationInfo> CudaMemory::find(DeviceAddress address) const {
  {
    const std::lock_guard lock(mutex_);
    const auto after = live_.upper_bound(address.value);
    if (after != live_.begin()) {
      const auto& [base, allocation] = *std::prev(after);
      if (address.value - base < allocation.size_bytes) {
        return AllocationInfo{{base}, allocation.size_bytes};
      }
    }
    // The driver would show memory that is nobody's now, or the whole slab.
    if (blocks_ && blocks_->contains(address.value)) {
      return std::nullopt;
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
