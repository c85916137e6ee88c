// Reads the text of /proc/self/mountinfo, whatever is in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hippogriff {

// One mount. Octal escapes are decoded in all names.
struct MountEntry {
  std::uint64_t id = 0;
  std::uint64_t parent_id = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  std::string root;         // of the file system, as seen at the mount point
  std::string mount_point;  // may be relative to nothing a process sees; compare, never open
  std::string options;
  std::string filesystem;
  std::string source;
};

// The entries in their order. Lines that are not mounts are left out. Never throws but for memory.
std::vector<MountEntry> parse_mountinfo(std::string_view text);

// The mount that a normalized absolute path lies in: the longest mount point above it, the last
// mounted of equal ones. nullptr when there is none.
const MountEntry* mount_of_path(const std::vector<MountEntry>& mounts, std::string_view path);

}  // namespace hippogriff
