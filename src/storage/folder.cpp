// Folders: their part of a path, and fsync on them.
#include "storage/folder.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace hippogriff {

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Folder::Folder(std::string path)
    : path_(std::move(path)), descriptor_(retry_interrupted([&] {
        return ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      })) {
  if (!descriptor_.valid()) {
    throw_io("open folder", path_, no_offset, errno);
  }
}

void Folder::sync() const {
  if (retry_interrupted([&] { return ::fsync(descriptor_.get()); }) != 0 && errno != EINVAL) {
    throw_io("sync folder", path_, no_offset, errno);
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
