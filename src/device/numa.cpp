// What the kernel tells and takes; nothing of libnuma is needed for it.
#include "device/numa.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

namespace hippogriff {

int numa_node_of_pci_device(const std::string& bus_id, const std::filesystem::path& sysfs) {
  std::ifstream file(sysfs / "bus" / "pci" / "devices" / bus_id / "numa_node");
  int node = -1;
  return file >> node && node >= 0 ? node : -1;
}

int prefer_numa_node(std::byte* memory, std::size_t size_bytes, int numa_node) noexcept {
  constexpr unsigned bits_per_word = 64;
  std::array<unsigned long, 16> mask{};
  // The kernel takes one bit less than it is told of.
  constexpr unsigned bits = mask.size() * bits_per_word;
  if (numa_node < 0) {
    return 0;
  }
  if (std::cmp_greater_equal(numa_node, bits - 1)) {
    return EINVAL;
  }
  const auto node = static_cast<unsigned>(numa_node);
  mask[node / bits_per_word] = 1UL << (node % bits_per_word);
  return ::syscall(SYS_mbind, memory, size_bytes, MPOL_PREFERRED, mask.data(), bits, 0) == 0
             ? 0
             : errno;
}

}  // namespace hippogriff
