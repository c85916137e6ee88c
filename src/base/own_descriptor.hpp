// Descriptors that are opened here do not become a standard stream.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hippogriff {

// Takes a descriptor that was just opened, or -1, and returns it with a number above those of the
// standard streams; -1 and errno where there is none left. A program that was started without a
// stream (`>&-`) gets that number for what it opens next, and prints into it.
inline int own_descriptor(int fd) noexcept {
  if (fd < STDIN_FILENO || fd > STDERR_FILENO) {
    return fd;
  }
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  const int error = errno;
  static_cast<void>(::close(fd));
  errno = error;
  return moved;
}

}  // namespace hippogriff
