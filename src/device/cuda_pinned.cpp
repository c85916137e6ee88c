// Pinned memory: pages near the device, populated in parallel, then registered with the driver.
#include "device/cuda_pinned.hpp"

#if HIPPOGRIFF_HAS_CUDA

#include "base/page_size.hpp"
#include "base/range.hpp"
#include "device/cuda_registrar.hpp"
#include "device/numa.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t populate_bytes_a_thread = 8U << 20;
// Whoever maps memory meanwhile waits for a slice.
constexpr std::size_t populate_slice_bytes = huge_page_bytes;
constexpr unsigned populate_threads_max = 8;
constexpr int advise_populate_write = 23;  // MADV_POPULATE_WRITE, Linux 5.14

[[noreturn]] void throw_no_pages(std::size_t size_bytes, int errno_value) {
  Failure failure;
  failure.status = Status::out_of_host_memory;
  failure.operation = "allocate pinned memory";
  failure.object = "host";
  failure.errno_value = errno_value;
  failure.detail = "asked for " + std::to_string(size_bytes) + " bytes";
  throw Error(std::move(failure));
}

// Anonymous pages that begin on a huge page when there is at least one.
std::byte* map_aligned_pages(std::size_t size_bytes) {
  const std::size_t slack_bytes = size_bytes >= huge_page_bytes ? huge_page_bytes : 0;
  void* mapped = ::mmap(nullptr,
                        size_bytes + slack_bytes,
                        PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                        -1,
                        0);
  if (mapped == MAP_FAILED) {
    throw_no_pages(size_bytes, errno);
  }
  auto* begin = static_cast<std::byte*>(mapped);
  if (slack_bytes == 0) {
    return begin;
  }
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t head_bytes = align_up(address, huge_page_bytes) - address;
  const std::size_t tail_bytes = slack_bytes - head_bytes;
  // Unmapping an end of our own mapping splits nothing, so it cannot fail.
  if (head_bytes != 0) {
    ::munmap(begin, head_bytes);
  }
  if (tail_bytes != 0) {
    ::munmap(begin + head_bytes + size_bytes, tail_bytes);
  }
  return begin + head_bytes;
}

// Gives a slice its pages. Returns 0 or an errno.
int populate_slice(std::byte* memory, std::size_t size_bytes) noexcept {
  int result = 0;
  do {
    result = ::madvise(memory, size_bytes, advise_populate_write);
  } while (result != 0 && (errno == EINTR || errno == EAGAIN));
  if (result == 0) {
    return 0;
  }
  if (errno != EINVAL) {
    return errno;
  }
  for (std::size_t offset = 0; offset < size_bytes; offset += page_bytes()) {
    static_cast<volatile std::byte*>(memory)[offset] = std::byte{0};
  }
  return 0;
}

// Populates all of it with a few threads. Returns 0 or the first errno.
int populate(std::byte* memory, std::size_t size_bytes) {
  std::atomic<std::size_t> next{0};
  std::atomic<int> failed{0};
  const auto work = [&]() noexcept {
    for (std::size_t offset = next.fetch_add(populate_slice_bytes);
         offset < size_bytes && failed == 0;
         offset = next.fetch_add(populate_slice_bytes)) {
      const int error =
          populate_slice(memory + offset, std::min(populate_slice_bytes, size_bytes - offset));
      if (error != 0) {
        failed = error;
      }
    }
  };
  const auto threads = std::min<std::size_t>(
      {align_up(size_bytes, populate_bytes_a_thread) / populate_bytes_a_thread,
       populate_threads_max,
       std::max(1U, std::thread::hardware_concurrency())});
  {
    std::vector<std::jthread> team;
    for (std::size_t index = 1; index < threads; ++index) {
      try {
        team.emplace_back(work);
      } catch (const std::exception&) {
        break;  // fewer threads do the same work
      }
    }
    work();
  }
  return failed;
}

}  // namespace

CudaPinned::CudaPinned(const CudaContext& context, int numa_node)
    : context_(context), numa_node_(numa_node) {}

CudaPinned::~CudaPinned() {
  for (const auto& [memory, size_bytes] : sizes_) {
    release_pages(memory, size_bytes);
  }
}

std::byte* CudaPinned::allocate(std::size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > SIZE_MAX / 2) {
    throw_invalid("allocate pinned memory", "the size is " + std::to_string(size_bytes));
  }
  const std::size_t mapped_bytes = align_up(size_bytes, page_bytes());
  std::byte* memory = map_aligned_pages(mapped_bytes);
  try {
    // Advice only: without huge pages, DONTFORK or a node the memory works as well.
    static_cast<void>(::madvise(memory, mapped_bytes, MADV_HUGEPAGE));
    static_cast<void>(::madvise(memory, mapped_bytes, MADV_DONTFORK));
    static_cast<void>(prefer_numa_node(memory, mapped_bytes, numa_node_));
    const int error = populate(memory, mapped_bytes);
    if (error != 0) {
      throw_no_pages(size_bytes, error);
    }
    const CudaScope scope(context_);
    const CUresult result = context_.driver().mem_host_register(
        memory, mapped_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (result != CUDA_SUCCESS) {
      fail_pinning(context_, result, mapped_bytes);
    }
  } catch (...) {
    ::munmap(memory, mapped_bytes);
    throw;
  }
  try {
    const std::lock_guard lock(mutex_);
    sizes_.emplace(memory, mapped_bytes);
  } catch (...) {
    release_pages(memory, mapped_bytes);
    throw;
  }
  return memory;
}

void CudaPinned::release(std::byte* memory) noexcept {
  std::size_t size_bytes = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto entry = sizes_.find(memory);
    HIPPO_ASSERT(entry != sizes_.end());
    size_bytes = entry->second;
    sizes_.erase(entry);
  }
  release_pages(memory, size_bytes);
}

void CudaPinned::release_pages(std::byte* memory, std::size_t size_bytes) const noexcept {
  if (!context_.driver().usable()) {
    return;  // a forked child never had these pages, and may have others at this address
  }
  try {
    // A failure means a dead context, whose registrations died with it.
    const CudaScope scope(context_);
    static_cast<void>(context_.driver().mem_host_unregister(memory));
  } catch (const Error&) {
    return;
  }
  ::munmap(memory, size_bytes);
}

}  // namespace hippogriff

#endif  // HIPPOGRIFF_HAS_CUDA
