// How much memory there is for this process: the machine's, or what its control groups leave of it.
#pragma once

#include <cstdint>
#include <string>

namespace hippogriff {

// UINT64_MAX where it cannot be known. Bytes.
struct MachineMemory {
  std::uint64_t total = UINT64_MAX;
  // To be had without swapping: what the page cache would give up is in it.
  std::uint64_t available = UINT64_MAX;
};

// Of /proc/meminfo and, where the process is in control groups with a limit, of version 1 or 2, of
// the one that leaves least. `root`: what the paths begin with, for tests.
[[nodiscard]] MachineMemory machine_memory(const std::string& root = "");

// The total, as it was when first asked for: that takes 0.1 ms. 0 where it cannot be known: this is
// what may be kept from being reclaimed.
[[nodiscard]] std::uint64_t total_memory_bytes();

}  // namespace hippogriff
