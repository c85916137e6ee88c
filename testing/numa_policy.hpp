// Where memory of a test should lie, as the kernel was told.
#pragma once

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace hippogriff::testing {

struct NumaPolicy {
  int mode = MPOL_DEFAULT;
  std::uint64_t first_nodes = 0;  // of the first 64, a bit each

  friend bool operator==(const NumaPolicy&, const NumaPolicy&) = default;
};

// Of an address; nothing where a kernel or container does not tell.
inline std::optional<NumaPolicy> numa_policy(const std::byte* memory) {
  NumaPolicy policy;
  std::array<unsigned long, 16> nodes{};
  const auto bits = nodes.size() * 64;
  if (::syscall(SYS_get_mempolicy, &policy.mode, nodes.data(), bits, memory, MPOL_F_ADDR) != 0) {
    return std::nullopt;
  }
  policy.first_nodes = nodes[0];
  return policy;
}

}  // namespace hippogriff::testing
