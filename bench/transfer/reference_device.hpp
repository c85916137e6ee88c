// The device as the hand-written contenders use it: CUDA's driver by dlopen, or memcpy on `host`.
// None of hippogriff's code is in it, so that the references do not share its mistakes.
#pragma once

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace bench {

// A stream with numbered slots: a slot is busy from a copy until wait(slot) has returned. One
// thread at a time. Throws std::runtime_error.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;
  virtual void to_device(std::uint64_t to,
                         const std::byte* from,
                         std::size_t size,
                         unsigned slot) = 0;
  virtual void to_host(std::byte* to, std::uint64_t from, std::size_t size, unsigned slot) = 0;
  virtual void wait(unsigned slot) = 0;
  virtual void drain() = 0;
};

// Thread-safe. Throws std::runtime_error with the driver's words.
class ReferenceDevice {
 public:
  virtual ~ReferenceDevice() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual nlohmann::json facts() const = 0;
  // Host memory at the link's full speed, in huge pages where the system has them (O_DIRECT of a
  // virtual drive is twice as fast into them); stays until the end of the program.
  virtual std::byte* allocate_pinned(std::size_t size) = 0;
  // Pages of a shared mapping, for copies to host memory.
  virtual void register_host(std::byte* memory, std::size_t size) = 0;
  virtual void unregister_host(std::byte* memory) = 0;
  // Blocking copies, as cuMemcpyHtoD and cuMemcpyDtoH do them.
  virtual void to_device(std::uint64_t to, const std::byte* from, std::size_t size) = 0;
  virtual void to_host(std::byte* to, std::uint64_t from, std::size_t size) = 0;
  virtual void fill(std::uint64_t address, unsigned char value, std::size_t size) = 0;
  virtual std::unique_ptr<CopyQueue> create_queue(unsigned slots) = 0;
  // Each thread calls this before anything else here.
  virtual void make_current() = 0;
  // Threads that the copy limit needs: 1 where an engine copies, all cores where memcpy does.
  [[nodiscard]] virtual unsigned copy_threads() const = 0;
  [[nodiscard]] virtual bool is_gpu() const = 0;
};

// Touched, aligned to huge pages and made of them if the system lets it. Throws std::bad_alloc.
std::byte* allocate_huge(std::size_t size);

std::unique_ptr<ReferenceDevice> make_host_reference();

// nullptr where there is no CUDA driver or GPU, or when built without CUDA; `why_not` then tells.
std::unique_ptr<ReferenceDevice> make_cuda_reference(int index, std::string& why_not);

}  // namespace bench
