// Pinned and registered pages of the host device, and copies that survive vanishing files.
#include "device/host_pages.hpp"

#include "base/page_size.hpp"
#include "base/size.hpp"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

namespace hippogriff {

namespace {

bool is_whole_pages(const std::byte* memory, std::size_t size_bytes) {
  return memory != nullptr && size_bytes != 0 && size_bytes % page_bytes() == 0 &&
         reinterpret_cast<std::uintptr_t>(memory) % page_bytes() == 0;
}

// Faults pages in as a GPU's driver does when it pins them. Returns 0 or an errno value.
int fault_in(std::byte* memory, std::size_t size_bytes, HostAccess access) noexcept {
#if defined(MADV_POPULATE_READ) && defined(MADV_POPULATE_WRITE)
  const int advice = access == HostAccess::read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  int result = madvise(memory, size_bytes, advice);
  while (result != 0 && (errno == EINTR || errno == EAGAIN)) {
    result = madvise(memory, size_bytes, advice);
  }
  if (result == 0) {
    return 0;
  }
  if (errno != EINVAL) {
    return errno;
  }
  // EINVAL: Linux before 5.14, or pages without the access. An empty range tells which.
  return madvise(memory, 0, advice) == 0 ? EACCES : 0;
#else
  static_cast<void>(memory), static_cast<void>(size_bytes), static_cast<void>(access);
  return 0;
#endif
}

}  // namespace

std::byte* HostPages::allocate_pinned(std::size_t size_bytes) {
  if (size_bytes == 0) {
    throw_invalid("allocate pinned memory for " + device_name_, "the size is 0");
  }
  try {
    auto mapping = std::make_unique<PageMapping>(size_bytes);
    mapping->populate();
    std::byte* const memory = mapping->data();
    const std::size_t mapped_bytes = mapping->size_bytes();
    const std::unique_lock lock(mutex_);
    pages_.emplace(memory, Pages{mapped_bytes, std::move(mapping)});
    return memory;
  } catch (const std::bad_alloc&) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "allocate pinned memory for",
                 .object = device_name_,
                 .errno_value = ENOMEM,
                 .detail = "asked " + format_size(size_bytes)});
  }
}

void HostPages::release_pinned(std::byte* memory) noexcept {
  if (memory == nullptr) {
    return;
  }
  std::unique_ptr<PageMapping> mapping;  // unmapped after the lock
  const std::unique_lock lock(mutex_);
  const auto found = pages_.find(memory);
  HIPPO_ASSERT(found != pages_.end() && found->second.pinned != nullptr);
  mapping = std::move(found->second.pinned);
  pages_.erase(found);
}

void HostPages::register_pages(std::byte* memory, std::size_t size_bytes, HostAccess access) {
  if (!is_whole_pages(memory, size_bytes)) {
    throw_invalid(
        "register host memory with " + device_name_,
        "address and size must be whole pages, got " + std::to_string(size_bytes) + " bytes");
  }
  {
    const std::unique_lock lock(mutex_);
    if (overlaps(memory, size_bytes)) {
      throw Error({.status = Status::device_error,
                   .operation = "register host memory with",
                   .object = device_name_,
                   .detail = "the pages are already registered"});
    }
    pages_.emplace(memory, Pages{size_bytes, nullptr});
  }
  const int errno_value = fault_in(memory, size_bytes, access);
  if (errno_value != 0) {
    unregister(memory);
    throw Error({.status = Status::device_error,
                 .operation = "register host memory with",
                 .object = device_name_,
                 .errno_value = errno_value,
                 .detail = "the pages cannot be had"});
  }
}

void HostPages::unregister(std::byte* memory) noexcept {
  const std::unique_lock lock(mutex_);
  const auto found = pages_.find(memory);
  if (found != pages_.end() && found->second.pinned == nullptr) {
    pages_.erase(found);
  }
}

bool HostPages::is_registered(const std::byte* memory) const {
  const std::shared_lock lock(mutex_);
  const Pages* const pages = pages_around(memory);
  return pages != nullptr && pages->pinned == nullptr;
}

const HostPages::Pages* HostPages::pages_around(const std::byte* memory) const {
  const auto after = pages_.upper_bound(memory);
  if (after == pages_.begin()) {
    return nullptr;
  }
  const auto& [base, pages] = *std::prev(after);
  return std::cmp_less(memory - base, pages.size_bytes) ? &pages : nullptr;
}

bool HostPages::overlaps(const std::byte* memory, std::size_t size_bytes) const {
  const auto next = pages_.lower_bound(memory);
  const bool next_overlaps =
      next != pages_.end() && std::cmp_less(next->first - memory, size_bytes);
  return next_overlaps || pages_around(memory) != nullptr;
}

int copy_vanishing_pages(std::byte* to, const std::byte* from, std::size_t size_bytes) noexcept {
  const pid_t self = getpid();
  while (size_bytes != 0) {
    const iovec local{to, size_bytes};
    const iovec remote{const_cast<std::byte*>(from), size_bytes};
    const ssize_t copied = process_vm_readv(self, &local, 1, &remote, 1, 0);
    if (copied > 0) {
      to += copied;
      from += copied;
      size_bytes -= static_cast<std::size_t>(copied);
    } else if (copied == 0 || errno == EFAULT) {
      return EFAULT;
    } else {
      // The sandbox forbids the call: copy as the CPU does and trust the file to stay.
      std::memcpy(to, from, size_bytes);
      return 0;
    }
  }
  return 0;
}

}  // namespace hippogriff
