// A page that a forked child finds wiped: it tells parent from child without a system call.
#pragma once

#include "base/error.hpp"

#include <sys/mman.h>

#include <cerrno>

namespace hippogriff::node {

class ForkPage {
 public:
  ForkPage()
      : memory_(::mmap(
            nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    if (memory_ == MAP_FAILED || ::madvise(memory_, size_bytes, MADV_WIPEONFORK) != 0) {
      throw_io("map page", {}, no_offset, errno);
    }
    *static_cast<volatile char*>(memory_) = 1;
  }

  ~ForkPage() { static_cast<void>(::munmap(memory_, size_bytes)); }

  ForkPage(const ForkPage&) = delete;
  ForkPage& operator=(const ForkPage&) = delete;

  [[nodiscard]] bool wiped() const noexcept { return *static_cast<volatile char*>(memory_) == 0; }

 private:
  static constexpr unsigned long size_bytes = 4096;
  void* memory_;
};

}  // namespace hippogriff::node
