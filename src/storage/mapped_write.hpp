// Writing into a shared mapping of a file without the danger of touching it.
#pragma once

#include <cstddef>
#include <span>

namespace hippogriff {

// Copies `from` to `to`, which lies in a mapping open for writing, and returns how many bytes got
// there before a page could not be had: the file was truncated, or its file system is full. Plain
// stores would end the process with SIGBUS then. Thread-safe.
[[nodiscard]] std::size_t write_into_mapping(std::span<std::byte> to,
                                             const std::byte* from) noexcept;

// Whether the system lets a process do this: it is process_vm_writev to itself, which some
// containers forbid. Asked once.
[[nodiscard]] bool can_write_into_mappings() noexcept;

}  // namespace hippogriff
