// Device `host` for the hand-written contenders: copies are memcpy, done when the call returns.
#include "transfer/reference_device.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

namespace bench {

namespace {

void* pointer(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): it was a pointer
}

class HostQueue : public CopyQueue {
 public:
  void to_device(std::uint64_t to,
                 const std::byte* from,
                 std::size_t size,
                 unsigned /*slot*/) override {
    std::memcpy(pointer(to), from, size);
  }

  void to_host(std::byte* to, std::uint64_t from, std::size_t size, unsigned /*slot*/) override {
    std::memcpy(to, pointer(from), size);
  }

  void wait(unsigned /*slot*/) override {}

  void drain() override {}
};

class HostReference : public ReferenceDevice {
 public:
  [[nodiscard]] std::string name() const override { return "host"; }

  [[nodiscard]] nlohmann::json facts() const override { return {{"name", "host"}}; }

  std::byte* allocate_pinned(std::size_t size) override { return allocate_huge(size); }

  void register_host(std::byte* /*memory*/, std::size_t /*size*/) override {}

  void unregister_host(std::byte* /*memory*/) override {}

  void to_device(std::uint64_t to, const std::byte* from, std::size_t size) override {
    std::memcpy(pointer(to), from, size);
  }

  void to_host(std::byte* to, std::uint64_t from, std::size_t size) override {
    std::memcpy(to, pointer(from), size);
  }

  void fill(std::uint64_t address, unsigned char value, std::size_t size) override {
    std::memset(pointer(address), value, size);
  }

  std::unique_ptr<CopyQueue> create_queue(unsigned /*slots*/) override {
    return std::make_unique<HostQueue>();
  }

  void make_current() override {}

  [[nodiscard]] unsigned copy_threads() const override {
    return std::clamp(std::thread::hardware_concurrency(), 1U, 16U);
  }

  [[nodiscard]] bool is_gpu() const override { return false; }
};

}  // namespace

std::byte* allocate_huge(std::size_t size) {
  constexpr std::size_t huge_page = std::size_t{2} << 20U;
  const std::size_t whole = (size + huge_page - 1) / huge_page * huge_page;
  void* memory = std::aligned_alloc(huge_page, whole);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  madvise(memory, whole, MADV_HUGEPAGE);
  std::memset(memory, 1, whole);
  return static_cast<std::byte*>(memory);
}

std::unique_ptr<ReferenceDevice> make_host_reference() {
  return std::make_unique<HostReference>();
}

}  // namespace bench
