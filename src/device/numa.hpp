// NUMA: which node a device is near, and memory that should lie there.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

namespace hippogriff {

// The node of a PCI device ("0000:1b:00.0") by `sysfs`; -1 when it tells of none.
int numa_node_of_pci_device(const std::string& bus_id, const std::filesystem::path& sysfs);

// Says where pages should lie that have not been touched yet; where that node is full they lie
// elsewhere. -1 leaves it to the kernel. Returns 0 or an errno, after which they lie where they
// lie: containers often forbid it, and the node may be none.
int prefer_numa_node(std::byte* memory, std::size_t size_bytes, int numa_node) noexcept;

}  // namespace hippogriff
