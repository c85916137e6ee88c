// Host memory the host device copies with: pinned pages of its own, and registered pages of others.
#pragma once

#include "device/host_memory.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

namespace hippogriff {

// Thread-safe. Pinned memory that is still there goes with the object; registrations are forgotten.
class HostPages {
 public:
  explicit HostPages(std::string device_name) : device_name_(std::move(device_name)) {}

  // Populated pages, huge where possible. Throws Error: invalid_argument for 0 bytes,
  // out_of_host_memory.
  [[nodiscard]] std::byte* allocate_pinned(std::size_t size_bytes);
  // Null is fine; any other address that allocate_pinned did not return aborts as our bug.
  void release_pinned(std::byte* memory) noexcept;

  // Brings the caller's pages into memory. Throws Error: invalid_argument when memory or size are
  // not whole pages, device_error when pages overlap a registration or cannot be had (no mapping,
  // past the end of the file, not writable).
  void register_pages(std::byte* memory, std::size_t size_bytes, HostAccess access);
  // What is not registered is ignored.
  void unregister(std::byte* memory) noexcept;
  // Whether the byte at `memory` lies in pages of register_pages: they may vanish with their file.
  [[nodiscard]] bool is_registered(const std::byte* memory) const;

 private:
  struct Pages {
    std::size_t size_bytes;
    std::unique_ptr<PageMapping> pinned;  // null for registered pages
  };

  [[nodiscard]] const Pages* pages_around(const std::byte* memory) const;
  [[nodiscard]] bool overlaps(const std::byte* memory, std::size_t size_bytes) const;

  const std::string device_name_;
  mutable std::shared_mutex mutex_;
  std::map<const std::byte*, Pages> pages_;
};

// Copies within this process like memcpy, except that pages whose file was truncated give EFAULT
// instead of a fatal signal. Returns 0 or an errno value; then some bytes may have been copied.
[[nodiscard]] int copy_vanishing_pages(std::byte* to,
                                       const std::byte* from,
                                       std::size_t size_bytes) noexcept;

}  // namespace hippogriff
