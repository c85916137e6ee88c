// Pinned memory, and copies on device host.
#include "workloads/papers/copies.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <system_error>

namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20U;

class HostQueue final : public CopyQueue {
 public:
  explicit HostQueue(Device& device) : device_(device) {}

  void copy_in(void* to, const void* from, std::size_t size_bytes, unsigned /*slot*/) override {
    device_.copy_in(to, from, size_bytes);
  }

  void copy_out(void* to, const void* from, std::size_t size_bytes, unsigned /*slot*/) override {
    device_.copy_out(to, from, size_bytes);
  }

  void wait(unsigned /*slot*/) override {}

  void drain() noexcept override {}

 private:
  Device& device_;
};

}  // namespace

PinnedMemory::PinnedMemory(const Device& device, std::size_t size_bytes)
    : size_bytes_((size_bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes) {
  void* memory =
      mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap pinned memory");
  }
  // Drives and GPUs take long contiguous parts sooner; without huge pages it works all the same.
  static_cast<void>(madvise(memory, size_bytes_, MADV_HUGEPAGE));
  memory_ = static_cast<std::byte*>(memory);
  if (device.is_gpu()) {
    try {
      pin_for_gpu(memory, size_bytes_);
    } catch (...) {
      munmap(memory, size_bytes_);
      throw;
    }
    pinned_ = true;
  }
}

PinnedMemory::~PinnedMemory() {
  if (pinned_) {
    unpin_for_gpu(memory_);
  }
  munmap(memory_, size_bytes_);
}

std::unique_ptr<CopyQueue> open_copy_queue(Device& device, int gpu, unsigned slots) {
  if (device.is_gpu()) {
    return open_gpu_queue(gpu, slots);
  }
  return std::make_unique<HostQueue>(device);
}

#if !HIPPOGRIFF_HAS_CUDA
int current_gpu() {
  throw std::runtime_error("built without CUDA");
}

std::unique_ptr<CopyQueue> open_gpu_queue(int /*number*/, unsigned /*slots*/) {
  throw std::runtime_error("built without CUDA");
}

void pin_for_gpu(void* /*memory*/, std::size_t /*size_bytes*/) {
  throw std::runtime_error("built without CUDA");
}

void unpin_for_gpu(void* /*memory*/) noexcept {}
#endif
