// Fuzzes the mountinfo parser: whatever the text, entries are usable and lookups find real ones.
#include "storage/mountinfo.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  // libFuzzer hands over bytes; the parser reads text.
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  const auto mounts = hippogriff::parse_mountinfo(text);
  for (const auto& mount : mounts) {
    if (mount.mount_point.empty() || mount.filesystem.empty()) {
      std::abort();
    }
    const auto* found = hippogriff::mount_of_path(mounts, mount.mount_point);
    const bool absolute = mount.mount_point.front() == '/';
    if (absolute && (found == nullptr || found->mount_point != mount.mount_point)) {
      std::abort();
    }
  }
  return 0;
}
