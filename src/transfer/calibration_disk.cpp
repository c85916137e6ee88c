// The calibration file on disk: where it is, reading it with care, replacing it as a whole.
#include "transfer/calibration_disk.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "base/size_limit.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace hippogriff {
namespace {

void warn_once(const std::filesystem::path& file, const std::string& why) {
  static std::atomic<bool> warned = false;
  if (!warned.exchange(true)) {
    const std::string line =
        "hippogriff: ignoring the calibration file " + file.string() + ": " + why + "\n";
    static_cast<void>(std::fputs(line.c_str(), stderr));
  }
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}

  ~FileDescriptor() {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const { return fd_; }

  // Closing a written file is its last chance to report an error.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

constexpr std::size_t read_bytes_max = (std::size_t{1} << 20) + 1;

bool is_own_file(const struct stat& status) {
  return S_ISREG(status.st_mode) && (status.st_uid == ::geteuid() || status.st_uid == 0);
}

// The whole file, or one byte more than parse takes. Nothing when there is none.
std::optional<std::string> read_own_file(const std::filesystem::path& file) {
  // O_NONBLOCK: a FIFO put there must not hang the program.
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return std::nullopt;
    }
    throw_io("open", file.string(), no_offset, errno);
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    throw_io("fstat", file.string(), no_offset, errno);
  }
  if (!is_own_file(status)) {
    throw_invalid("read a calibration", "it is not a file of this user's");
  }
  // Replaced as a whole, it never grows; new memory is what would take longest here.
  const auto file_bytes = static_cast<std::size_t>(std::max<off_t>(status.st_size, 0));
  std::string text(std::min(file_bytes + 1, read_bytes_max), '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t count = ::read(fd.get(), text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      throw_io("read", file.string(), size, errno);
    }
    if (count == 0) {
      break;
    }
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

void write_all(int fd, std::string_view text, const std::string& name) {
  const SizeLimitScope size_limit;
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      throw_io("write", name, done, count < 0 ? errno : EIO);
    }
    done += static_cast<std::size_t>(count);
  }
}

void make_folders(const std::filesystem::path& folder) {
  if (folder.empty() || std::filesystem::is_directory(folder)) {
    return;
  }
  make_folders(folder.parent_path());
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw_io("mkdir", folder.string(), no_offset, errno);
  }
}

void sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) {
    throw_io("open", folder.string(), no_offset, errno);
  }
  // Some file systems cannot sync a folder; the rename is atomic all the same.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) {
    throw_io("fsync", folder.string(), no_offset, errno);
  }
}

std::filesystem::path home_folder() {
  if (const char* home = ::secure_getenv("HOME"); home != nullptr && *home == '/') {
    return home;
  }
  std::vector<char> memory(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(::geteuid(), &entry, memory.data(), memory.size(), &found) == 0 &&
      found != nullptr && found->pw_dir != nullptr && *found->pw_dir == '/') {
    return found->pw_dir;
  }
  return {};
}

// Where a symbolic link leads, and the name itself where nothing is.
std::filesystem::path behind_links(const std::filesystem::path& file) {
  std::error_code error;
  std::filesystem::path found = std::filesystem::canonical(file, error);
  return error ? file : found;
}

// What load_calibration would not read for its kind or owner is not ours to replace. A damaged
// file is: what it knew is lost anyway.
void check_replaceable(const std::filesystem::path& file) {
  struct stat status{};
  if (::stat(file.c_str(), &status) == 0 && !is_own_file(status)) {
    throw Error({.status = Status::invalid_argument,
                 .operation = "save a calibration",
                 .object = file.string(),
                 .detail = "it is not a file of this user's; HIPPOGRIFF_CALIBRATION names another, "
                           "or none at all when it is empty"});
  }
}

}  // namespace

std::optional<CalibrationFile> load_calibration(const std::filesystem::path& file) {
  if (file.empty()) {
    return std::nullopt;
  }
  try {
    const auto text = read_own_file(file);
    return text ? std::optional(parse_calibration(*text)) : std::nullopt;
  } catch (const std::exception& error) {
    warn_once(file, error.what());
    return std::nullopt;
  }
}

void save_calibration(const std::filesystem::path& file, const CalibrationFile& calibration) {
  const std::string text = format_calibration(calibration);
  check_replaceable(file);
  const std::filesystem::path target = behind_links(file);
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  make_folders(folder);
  std::string temporary = target.string() + ".XXXXXX";
  FileDescriptor fd(own_descriptor(::mkostemp(temporary.data(), O_CLOEXEC)));
  if (fd.get() < 0) {
    throw_io("create", temporary, no_offset, errno);
  }
  try {
    write_all(fd.get(), text, temporary);
    if (::fsync(fd.get()) != 0) {
      throw_io("fsync", temporary, no_offset, errno);
    }
    if (fd.close() != 0) {
      throw_io("close", temporary, no_offset, errno);
    }
    if (::rename(temporary.c_str(), target.c_str()) != 0) {
      throw_io("rename", target.string(), no_offset, errno);
    }
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

std::filesystem::path CalibrationStore::default_file() {
  if (const char* named = ::secure_getenv("HIPPOGRIFF_CALIBRATION"); named != nullptr) {
    return named;
  }
  if (const char* cache = ::secure_getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::filesystem::path(cache) / "hippogriff" / "calibration.json";
  }
  const std::filesystem::path home = home_folder();
  return home.empty() ? home : home / ".cache" / "hippogriff" / "calibration.json";
}

}  // namespace hippogriff
