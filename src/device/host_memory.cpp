// Device memory made of anonymous mappings: cheap however big, given back to the system when freed.
#include "device/host_memory.hpp"

#include "base/page_size.hpp"
#include "base/range.hpp"
#include "base/size.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>
#include <utility>

namespace hippogriff {

namespace {

constexpr std::size_t block_bytes_min = 256;
constexpr std::size_t slab_bytes = std::size_t{1} << 20;

std::byte* map_pages(std::size_t size_bytes) {
  void* const pages = mmap(nullptr,
                           size_bytes,
                           PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                           -1,
                           0);
  if (pages == MAP_FAILED) {
    throw std::bad_alloc();
  }
  return static_cast<std::byte*>(pages);
}

void unmap_pages(std::byte* pages, std::size_t size_bytes) noexcept {
  if (size_bytes != 0) {
    // munmap of a range we mapped fails only when splitting exceeds the kernel's map count.
    HIPPO_ASSERT(munmap(pages, size_bytes) == 0);
  }
}

std::size_t size_class(std::size_t counted_bytes) {
  return static_cast<std::size_t>(std::bit_width((counted_bytes - 1) / block_bytes_min));
}

}  // namespace

PageMapping::PageMapping(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes > SIZE_MAX / 2) {
    throw std::bad_alloc();
  }
  size_bytes_ = align_up(size_bytes, page_bytes());
  if (size_bytes_ < huge_page_bytes) {
    data_ = map_pages(size_bytes_);
    return;
  }
  // Huge pages need their own alignment: map more, and give the ends back.
  const std::size_t mapped_bytes = size_bytes_ + huge_page_bytes;
  std::byte* const mapped = map_pages(mapped_bytes);
  const auto start = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t head = align_up(start, huge_page_bytes) - start;
  data_ = mapped + head;
  unmap_pages(mapped, head);
  unmap_pages(data_ + size_bytes_, mapped_bytes - head - size_bytes_);
  // Only a speed-up: kernels without huge pages refuse it.
  static_cast<void>(madvise(data_, size_bytes_, MADV_HUGEPAGE));
}

PageMapping::~PageMapping() {
  unmap_pages(data_, size_bytes_);
}

void PageMapping::populate() {
#ifdef MADV_POPULATE_WRITE
  int result = madvise(data_, size_bytes_, MADV_POPULATE_WRITE);
  while (result != 0 && (errno == EINTR || errno == EAGAIN)) {
    result = madvise(data_, size_bytes_, MADV_POPULATE_WRITE);
  }
  if (result == 0) {
    return;
  }
  if (errno != EINVAL) {  // EINVAL: Linux before 5.14
    throw std::bad_alloc();
  }
#endif
  for (std::size_t at = 0; at < size_bytes_; at += page_bytes()) {
    static_cast<volatile std::byte*>(data_)[at] = std::byte{0};
  }
}

HostMemory::Slab::Slab(std::size_t slab_size_bytes, std::size_t block)
    : pages(slab_size_bytes), block_bytes(block), block_count(slab_size_bytes / block) {
  free_blocks.reserve(block_count);
  for (std::size_t index = block_count; index > 0; --index) {
    free_blocks.push_back(static_cast<std::uint32_t>(index - 1));
  }
}

HostMemory::HostMemory(std::string device_name,
                       std::uint64_t limit_bytes,
                       std::shared_ptr<MemoryLedger> ledger)
    : device_name_(std::move(device_name)), limit_bytes_(limit_bytes), ledger_(std::move(ledger)) {}

HostMemory::~HostMemory() {
  if (ledger_ != nullptr && used_bytes_ != 0) {
    ledger_->give(used_bytes_);
  }
}

DeviceAddress HostMemory::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) {
    throw_invalid("allocate on " + device_name_, "the size is 0");
  }
  const std::uint64_t counted_bytes = count(size_bytes);
  // Without the lock: the ledger may wait.
  const bool taken = ledger_ == nullptr || ledger_->take(counted_bytes);
  const std::unique_lock lock(mutex_);
  if (!taken) {
    used_bytes_ -= counted_bytes;
    refuse_promised(size_bytes);
  }
  std::shared_ptr<Slab> slab;
  try {
    slab = slab_for(counted_bytes);
  } catch (const std::bad_alloc&) {
    used_bytes_ -= counted_bytes;
    if (ledger_ != nullptr) {
      ledger_->give(counted_bytes);
    }
    refuse(size_bytes, ENOMEM);
  }
  const std::size_t offset_bytes = slab->free_blocks.back() * slab->block_bytes;
  const auto address = reinterpret_cast<std::uintptr_t>(slab->pages.data() + offset_bytes);
  allocations_.emplace(address, Allocation{size_bytes, counted_bytes, slab});
  slab->free_blocks.pop_back();
  if (slab->free_blocks.empty() && slab->block_count > 1) {
    open_slabs_.at(size_class(slab->block_bytes)).erase(slab);
  }
  return {address};
}

std::uint64_t HostMemory::count(std::size_t size_bytes) {
  const std::unique_lock lock(mutex_);
  const std::uint64_t free_bytes = limit_bytes_ - used_bytes_;
  if (size_bytes > free_bytes || align_up(size_bytes, block_bytes_min) > free_bytes) {
    refuse(size_bytes, 0);
  }
  const std::uint64_t counted_bytes = align_up(size_bytes, block_bytes_min);
  used_bytes_ += counted_bytes;
  return counted_bytes;
}

std::shared_ptr<HostMemory::Slab> HostMemory::slab_for(std::size_t counted_bytes) {
  const std::size_t index = size_class(counted_bytes);
  if (index >= class_count) {
    return std::make_shared<Slab>(counted_bytes, counted_bytes);
  }
  auto& open = open_slabs_.at(index);
  if (!open.empty()) {
    return *open.begin();
  }
  auto slab = std::make_shared<Slab>(slab_bytes, block_bytes_min << index);
  open.insert(slab);
  return slab;
}

void HostMemory::release(DeviceAddress address) noexcept {
  if (address.is_null()) {
    return;
  }
  std::shared_ptr<Slab> slab;  // outlives the lock: unmapping gigabytes takes its time
  const std::unique_lock lock(mutex_);
  const auto found = allocations_.find(address.value);
  HIPPO_ASSERT(found != allocations_.end());
  used_bytes_ -= found->second.counted_bytes;
  if (ledger_ != nullptr) {
    ledger_->give(found->second.counted_bytes);
  }
  slab = std::move(found->second.slab);
  allocations_.erase(found);
  give_back(slab, address.value);
}

void HostMemory::give_back(const std::shared_ptr<Slab>& slab, std::uint64_t address) noexcept {
  if (slab->block_count == 1) {
    return;
  }
  const std::uint64_t offset_bytes = address - reinterpret_cast<std::uintptr_t>(slab->pages.data());
  slab->free_blocks.push_back(static_cast<std::uint32_t>(offset_bytes / slab->block_bytes));
  auto& open = open_slabs_.at(size_class(slab->block_bytes));
  if (slab->free_blocks.size() == 1) {
    try {
      open.insert(slab);
    } catch (const std::bad_alloc&) {
      return;  // The slab's other blocks still hold it; only this block is not used again.
    }
  }
  // One empty slab per class stays, so that allocating and freeing one block is not a mapping each.
  if (slab->free_blocks.size() == slab->block_count && open.size() > 1) {
    open.erase(slab);
  }
}

std::optional<AllocationInfo> HostMemory::find(DeviceAddress address) const {
  const std::shared_lock lock(mutex_);
  auto after = allocations_.upper_bound(address.value);
  if (after == allocations_.begin()) {
    return std::nullopt;
  }
  const auto& [base, allocation] = *std::prev(after);
  if (address.value - base >= allocation.size_bytes) {
    return std::nullopt;
  }
  return AllocationInfo{{base}, allocation.size_bytes};
}

DeviceMemory HostMemory::memory() const {
  const std::shared_lock lock(mutex_);
  return {.free_bytes = limit_bytes_ - used_bytes_, .total_bytes = limit_bytes_};
}

void HostMemory::refuse_promised(std::size_t size_bytes) const {
  throw Error({.status = Status::out_of_device_memory,
               .operation = "allocate on",
               .object = device_name_,
               .detail = "asked " + std::to_string(size_bytes) + " bytes (" +
                         format_size(size_bytes) +
                         "), and what is left is promised to other programs (hippogriff ps)"});
}

void HostMemory::refuse(std::size_t size_bytes, int errno_value) const {
  const std::uint64_t free_bytes = limit_bytes_ - used_bytes_;
  throw Error({.status = Status::out_of_device_memory,
               .operation = "allocate on",
               .object = device_name_,
               .errno_value = errno_value,
               .detail = "asked " + std::to_string(size_bytes) + " bytes (" +
                         format_size(size_bytes) + "), free " + std::to_string(free_bytes) +
                         " of " + std::to_string(limit_bytes_) + " bytes (" +
                         format_size(free_bytes) + " of " + format_size(limit_bytes_) + ")"});
}

}  // namespace hippogriff
