// The size of this system's pages of memory.
#pragma once

#include <unistd.h>

#include <cstddef>

namespace hippogriff {

// In bytes; a power of two. Asked for once.
[[nodiscard]] inline std::size_t page_bytes() noexcept {
  static const auto size_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size_bytes;
}

// Of the huge pages that the kernel gives on its own, on processors with pages of 4 KiB.
inline constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

}  // namespace hippogriff
