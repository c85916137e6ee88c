// AtomicFile: a file without a name (O_TMPFILE) or with a temporary one, which gets the target's.
#include "storage/atomic_file.hpp"

#include "base/own_descriptor.hpp"
#include "storage/descriptor.hpp"
#include "storage/folder.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

namespace hippogriff {
namespace {

constexpr int links_max = 40;  // as the kernel's own limit
constexpr int name_attempts_max = 16;
constexpr int looks_max = 40;
constexpr mode_t new_file_mode = 0666;
constexpr mode_t private_file_mode = 0600;  // before it has the mode of the one it replaces

// The path at the end of the symbolic links, which need not exist.
std::string follow_links(const std::string& path) {
  std::filesystem::path at = path;
  for (int i = 0; i < links_max; ++i) {
    std::array<char, PATH_MAX> text{};
    const ssize_t size = ::readlink(at.c_str(), text.data(), text.size());
    if (size < 0) {
      return at.string();  // not a link, or not there: opening it says what is wrong
    }
    const std::filesystem::path next(std::string(text.data(), static_cast<std::size_t>(size)));
    at = next.is_absolute() ? next : at.parent_path() / next;
  }
  throw_io("follow links", path, no_offset, ELOOP);
}

// Refuses what has no name: the links of /proc lead to such files, too, with a text that is no
// path. What somebody replaces between two looks is looked at again.
void expect_name(const std::string& path, const std::string& end) {
  struct stat status{};
  struct stat named{};
  for (int look = 0; look < looks_max; ++look) {
    if (::stat(path.c_str(), &status) != 0) {
      return;  // there is none yet, or looking at the end of the links says what is wrong
    }
    if (::stat(end.c_str(), &named) == 0 && named.st_ino == status.st_ino &&
        named.st_dev == status.st_dev) {
      return;
    }
  }
  throw_invalid("replace",
                path,
                S_ISREG(status.st_mode) ? "the file has no name that a new one could take"
                                        : "it is not a regular file");
}

// What a path names to be replaced, wherever the process has gone when the file gets its name.
std::string target_of(const std::string& path) {
  const std::string end = follow_links(path);
  if (!std::filesystem::path(end).has_filename()) {
    throw_invalid("replace", path, "it names no file");
  }
  expect_name(path, end);
  std::error_code failure;
  const std::filesystem::path whole = std::filesystem::absolute(end, failure);
  if (failure) {
    throw_io("find the folder of", path, no_offset, failure.value());
  }
  return whole.string();
}

std::string temporary_name(const std::string& target) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) {
    throw_io("name a temporary file for", target, no_offset, errno);
  }
  std::array<char, 64> suffix{};
  const int length = std::snprintf(suffix.data(),
                                   suffix.size(),
                                   ".hippogriff-%ld-%016llx",
                                   static_cast<long>(::getpid()),
                                   static_cast<unsigned long long>(random));
  const std::string name = std::filesystem::path(target).filename().string();
  const std::size_t room = NAME_MAX - 1 - static_cast<std::size_t>(length);
  return folder_of(target) + "/." + name.substr(0, room) + suffix.data();
}

// The status of the file to replace; nothing when there is none.
std::optional<struct stat> status_of(const std::string& target) {
  struct stat status{};
  if (::stat(target.c_str(), &status) != 0) {
    if (errno == ENOENT) {
      return std::nullopt;
    }
    throw_io("replace", target, no_offset, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw_invalid("replace", target, "it is not a regular file");
  }
  // The folder's permissions alone would let a read-only file be replaced.
  if (::faccessat(AT_FDCWD, target.c_str(), W_OK, AT_EACCESS) != 0) {
    throw_io("replace", target, no_offset, errno);
  }
  return status;
}

// Gives the new file the old one's mode and, where the system lets it, owner.
void keep_mode(int fd, const struct stat& old, const std::string& target) {
  mode_t mode = old.st_mode & 07777;
  const bool same_owner = old.st_uid == ::geteuid() || ::fchown(fd, old.st_uid, UINT_MAX) == 0;
  const bool same_group = ::fchown(fd, UINT_MAX, old.st_gid) == 0;
  if (!same_owner || !same_group) {
    // These bits would lend the rights of somebody else than before.
    mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
  }
  if (::fchmod(fd, mode) != 0) {
    throw_io("set the mode of", target, no_offset, errno);
  }
}

// A file without a name that can be given one later; invalid where that does not work.
Descriptor open_unnamed(const std::string& target, mode_t mode) {
  Descriptor descriptor(retry_interrupted([&] {
    return own_descriptor(::open(folder_of(target).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode));
  }));
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor.get());
  if (descriptor.valid() && ::access(link.c_str(), F_OK) != 0) {
    return {};
  }
  return descriptor;
}

struct NamedFile {
  Descriptor descriptor;
  std::string path;
};

NamedFile open_named(const std::string& target, mode_t mode) {
  for (int attempt = 0;; ++attempt) {
    std::string path = temporary_name(target);
    Descriptor descriptor(retry_interrupted([&] {
      return own_descriptor(
          ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    }));
    if (descriptor.valid()) {
      return {std::move(descriptor), std::move(path)};
    }
    if (errno != EEXIST || attempt == name_attempts_max) {
      throw_io("create a temporary file for", target, no_offset, errno);
    }
  }
}

}  // namespace

AtomicFile::AtomicFile(std::shared_ptr<Storage> storage,
                       const std::string& path,
                       TemporaryKind kind)
    : storage_(std::move(storage)), target_(target_of(path)) {
  const auto old = status_of(target_);
  const mode_t mode = old ? private_file_mode : new_file_mode;
  Descriptor descriptor;
  if (kind == TemporaryKind::automatic) {
    descriptor = open_unnamed(target_, mode);
  }
  if (!descriptor.valid()) {
    NamedFile named = open_named(target_, mode);
    descriptor = std::move(named.descriptor);
    temporary_ = std::move(named.path);
  }
  try {
    if (old) {
      keep_mode(descriptor.get(), *old, target_);
    }
    file_ = storage_->adopt_as(descriptor.get(), FileAccess::read_write, target_);
  } catch (...) {
    if (!temporary_.empty()) {
      storage_->remove(temporary_);
    }
    throw;
  }
}

AtomicFile::~AtomicFile() {
  discard();
}

void AtomicFile::discard() noexcept {
  if (committed_) {
    return;
  }
  if (!temporary_.empty()) {
    storage_->remove(temporary_);
    temporary_.clear();
  }
  // Others may hold the file for long, and the disk may be full of it. Not where it has a name: the
  // target's, when only the folder's sync failed.
  struct stat status{};
  if (file_ != nullptr && ::fstat(file_->fd(), &status) == 0 && status.st_nlink == 0) {
    static_cast<void>(::ftruncate(file_->fd(), 0));
  }
}

void AtomicFile::link_unnamed() {
  for (int attempt = 0;; ++attempt) {
    const std::string path = temporary_name(target_);
    if (link_descriptor(file_->fd(), path)) {
      temporary_ = path;
      return;
    }
    if (attempt == name_attempts_max) {
      throw_io("name the new file for", target_, no_offset, EEXIST);
    }
  }
}

void AtomicFile::commit() {
  if (committed_) {
    throw_invalid("commit", target_, "it is committed already");
  }
  file_->sync();
  // As it is by now: it may have been made private since.
  struct stat old{};
  if (::stat(target_.c_str(), &old) == 0) {
    keep_mode(file_->fd(), old, target_);
  }
  // Where there is nothing to replace, nothing can be left of a process that is killed.
  if (temporary_.empty() && !storage_->name(*file_, target_)) {
    link_unnamed();
  }
  // From here on the temporary name may be the target's: when only the folder's sync fails,
  // removing the name again is harmless, for it is gone.
  if (!temporary_.empty()) {
    storage_->rename(temporary_, target_);
  }
  committed_ = true;
}

}  // namespace hippogriff
