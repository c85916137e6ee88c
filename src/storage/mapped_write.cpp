// The kernel copies, and checks every page before it does.
#include "storage/mapped_write.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace hippogriff {
namespace {

// The kernel takes the pages of one call first and copies then: few enough to stay in a processor's
// cache between their clearing and the copy.
constexpr std::size_t step_bytes = std::size_t{64} << 10;

}  // namespace

std::size_t write_into_mapping(std::span<std::byte> to, const std::byte* from) noexcept {
  const pid_t self = ::getpid();
  std::size_t put = 0;
  while (put < to.size()) {
    const std::size_t step = std::min(step_bytes, to.size() - put);
    // It only reads from there.
    const iovec source{const_cast<std::byte*>(from) + put,  // NOLINT(*-pro-type-const-cast)
                       step};
    const iovec target{to.data() + put, step};
    const ssize_t count = ::process_vm_writev(self, &source, 1, &target, 1, 0);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      break;
    }
    put += static_cast<std::size_t>(count);
  }
  return put;
}

bool can_write_into_mappings() noexcept {
  static const bool can = [] {
    const std::byte from{1};
    std::byte to{0};
    return write_into_mapping({&to, 1}, &from) == 1 && to == from;
  }();
  return can;
}

}  // namespace hippogriff
