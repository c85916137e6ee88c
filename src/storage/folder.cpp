// Folders: their part of a path, and fsync on them.
#include "storage/folder.hpp"

#include "base/error.hpp"
#include "storage/descriptor.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace hippogriff {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void sync_folder(const std::string& folder) {
  const Descriptor descriptor(retry_interrupted(
      [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!descriptor.valid()) {
    throw_io("open folder", folder, no_offset, errno);
  }
  if (retry_interrupted([&] { return ::fsync(descriptor.get()); }) != 0 && errno != EINVAL) {
    throw_io("sync folder", folder, no_offset, errno);
  }
}

bool link_descriptor(int fd, const std::string& path) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  if (::linkat(AT_FDCWD, link.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    return true;
  }
  if (errno != EEXIST) {
    throw_io("give the new file its name", path, no_offset, errno);
  }
  return false;
}

}  // namespace hippogriff
