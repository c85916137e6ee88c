// The probes of an open file. Each asks the kernel; nothing is guessed where the kernel tells.
#include "storage/file_probe.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "storage/drives.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace hippogriff {
namespace {

struct KnownFileSystem {
  std::uint64_t magic;
  std::string_view name;
  bool in_memory = false;
};

// Magic numbers of linux/magic.h and, where that lacks them, of the file system's own sources.
constexpr std::array<KnownFileSystem, 26> known_filesystems = {{
    {0xEF53, "ext4"},
    {0x58465342, "xfs"},
    {0x9123683E, "btrfs"},
    {0x01021994, "tmpfs", true},
    {0x858458F6, "ramfs", true},
    {0x958458F6, "hugetlbfs", true},
    {0x794C7630, "overlay"},
    {0x6969, "nfs"},
    {0xFF534D42, "cifs"},
    {0xFE534D42, "smb2"},
    {0x65735546, "fuse"},
    {0x6A656A63, "fakeowner"},
    {0x2FC12FC1, "zfs"},
    {0xF2F52010, "f2fs"},
    {0xCA451A4E, "bcachefs"},
    {0x4D44, "vfat"},
    {0x2011BAB0, "exfat"},
    {0x7366746E, "ntfs3"},
    {0x9660, "iso9660"},
    {0x73717368, "squashfs"},
    {0xE0F5E1E2, "erofs"},
    {0x0BD00BD0, "lustre"},
    {0x47504653, "gpfs"},
    {0x00C36400, "ceph"},
    {0x01021997, "9p"},
    {0x64646178, "dax"},
}};

// statx as the kernel lays it out: the C library of Debian 12 knows neither the mount nor the
// direct I/O fields.
struct StatxRecord {
  std::uint32_t mask;
  std::array<std::byte, 140> other;
  std::uint64_t mount_id;
  std::uint32_t direct_memory_alignment;
  std::uint32_t direct_offset_alignment;
  std::array<std::byte, 96> rest;
};

static_assert(sizeof(StatxRecord) == 256);
static_assert(offsetof(StatxRecord, mount_id) == 0x90);
static_assert(offsetof(StatxRecord, direct_memory_alignment) == 0x98);

constexpr std::uint32_t statx_mount_id = 0x1000;
constexpr std::uint32_t statx_direct_alignment = 0x2000;
constexpr std::uint32_t page_sized_alignment = 4096;
constexpr std::uint32_t alignment_max = 1U << 20;

// False when the kernel is too old or the answer lacks what was asked.
bool ask_statx(int fd, std::uint32_t wanted, StatxRecord& record) {
  const long result = retry_interrupted(
      [&] { return ::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, wanted, &record); });
  return result == 0 && (record.mask & wanted) == wanted;
}

std::string descriptor_link(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

[[noreturn]] void refuse(const char* operation, const std::string& path, const char* kind) {
  throw_invalid(operation, path, std::string("it is ") + kind + ", not a file or block device");
}

std::uint64_t block_device_size(int fd, const std::string& path, const char* operation) {
  std::uint64_t size_bytes = 0;
  if (retry_interrupted([&] { return ::ioctl(fd, BLKGETSIZE64, &size_bytes); }) != 0) {
    throw_io(operation, path, no_offset, errno);
  }
  return size_bytes;
}

// One aligned read from the start of the file. Returns 0 (works), or errno; -1 when an empty file
// proves nothing.
int try_direct_read(int direct_fd, std::uint32_t alignment) {
  const std::unique_ptr<void, decltype(&std::free)> memory(std::aligned_alloc(alignment, alignment),
                                                           &std::free);
  if (memory == nullptr) {
    return ENOMEM;
  }
  const ssize_t count =
      retry_interrupted([&] { return ::pread(direct_fd, memory.get(), alignment, 0); });
  if (count < 0) {
    return errno;
  }
  return count == 0 ? -1 : 0;
}

}  // namespace

int open_mode(FileAccess access) {
  switch (access) {
    case FileAccess::read:
      return O_RDONLY;
    case FileAccess::write:
      return O_WRONLY;
    case FileAccess::read_write:
      break;
  }
  return O_RDWR;
}

bool flags_allow(int descriptor_flags, FileAccess access) {
  if ((descriptor_flags & O_PATH) != 0) {
    return false;
  }
  const int mode = descriptor_flags & O_ACCMODE;
  const bool readable = mode == O_RDONLY || mode == O_RDWR;
  const bool writable = mode == O_WRONLY || mode == O_RDWR;
  switch (access) {
    case FileAccess::read:
      return readable;
    case FileAccess::write:
      return writable;
    case FileAccess::read_write:
      return readable && writable;
  }
  return false;
}

FileIdentity identify(int fd, const std::string& path, const char* operation) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    throw_io(operation, path.empty() ? path_of_descriptor(fd) : path, no_offset, errno);
  }
  const mode_t kind = status.st_mode & S_IFMT;
  if (kind == S_IFREG) {
    return {status.st_dev, status.st_ino, static_cast<std::uint64_t>(status.st_size), false};
  }
  const std::string named = path.empty() ? path_of_descriptor(fd) : path;
  switch (kind) {
    case S_IFBLK:
      return {status.st_rdev, status.st_ino, block_device_size(fd, named, operation), true};
    case S_IFDIR:
      refuse(operation, named, "a directory");
    case S_IFSOCK:
      refuse(operation, named, "a socket");
    case S_IFIFO:
      refuse(operation, named, "a pipe");
    case S_IFCHR:
      refuse(operation, named, "a character device");
    default:
      refuse(operation, named, "something unknown");
  }
}

void refuse_without_size(int fd,
                         const FileIdentity& identity,
                         const std::string& path,
                         const char* operation) {
  char first = 0;
  const auto is_empty = [&](const FileIdentity& seen) {
    return seen.size == 0 && !seen.is_block_device;
  };
  // Looked at again: it may have grown meanwhile.
  if (is_empty(identity) && ::pread(fd, &first, 1, 0) == 1 &&
      is_empty(identify(fd, path, operation))) {
    throw_invalid(operation,
                  path.empty() ? path_of_descriptor(fd) : path,
                  "it has bytes but no size, as files of /proc: read it by other means");
  }
}

FileSystemKind filesystem_of(int fd, bool is_block_device) {
  if (is_block_device) {
    return {"block", false};
  }
  struct statfs status{};
  if (retry_interrupted([&] { return ::fstatfs(fd, &status); }) != 0) {
    return {"unknown", false};
  }
  // f_type is signed, and 32 bits wide on some machines.
  const std::uint64_t magic = static_cast<std::uint32_t>(status.f_type);
  for (const KnownFileSystem& known : known_filesystems) {
    if (known.magic == magic) {
      return {std::string(known.name), known.in_memory};
    }
  }
  std::array<char, 16> name{};
  std::snprintf(name.data(), name.size(), "0x%08llx", static_cast<unsigned long long>(magic));
  return {name.data(), false};
}

std::string path_of_descriptor(int fd) {
  std::array<char, 4096> target{};
  const ssize_t size = ::readlink(descriptor_link(fd).c_str(), target.data(), target.size());
  if (size <= 0) {
    return "file descriptor " + std::to_string(fd);
  }
  return {target.data(), static_cast<std::size_t>(size)};
}

Descriptor reopen(int fd, int flags) {
  const std::string link = descriptor_link(fd);
  const int mode = flags & (O_ACCMODE | O_SYNC | O_DSYNC | O_NOATIME | O_DIRECT);
  return Descriptor(retry_interrupted(
      [&] { return own_descriptor(::open(link.c_str(), mode | O_CLOEXEC | O_NOCTTY)); }));
}

DirectAlignment direct_alignment_of(int fd) {
  StatxRecord record{};
  if (!ask_statx(fd, statx_direct_alignment, record)) {
    return {};
  }
  return {true, std::max(record.direct_memory_alignment, record.direct_offset_alignment)};
}

std::string DeviceCatalog::drive_of(int fd, std::uint64_t device_number) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = drives_.find(device_number);
    if (known != drives_.end()) {
      return known->second;
    }
  }
  std::string name = drive_name(device_number);
  StatxRecord record{};
  if (name.empty() && ask_statx(fd, statx_mount_id, record)) {
    name = drive_of_mount(record.mount_id);
  }
  const std::lock_guard lock(mutex_);
  drives_.emplace(device_number, name);
  return name;
}

std::optional<std::uint32_t> DeviceCatalog::proved_alignment(int direct_fd,
                                                             const FileIdentity& identity,
                                                             std::string& why) {
  const std::lock_guard lock(mutex_);
  const auto known = alignments_.find(identity.device_number);
  if (known != alignments_.end()) {
    return known->second;
  }
  std::uint32_t alignment = logical_block_bytes(identity.device_number).value_or(0);
  const bool sane =
      alignment >= 512 && alignment <= alignment_max && (alignment & (alignment - 1)) == 0;
  if (!sane) {
    alignment = page_sized_alignment;
  }
  int answer = try_direct_read(direct_fd, alignment);
  if (answer == EINVAL && alignment < page_sized_alignment) {
    alignment = page_sized_alignment;
    answer = try_direct_read(direct_fd, alignment);
  }
  if (answer == 0) {
    alignments_.emplace(identity.device_number, alignment);
  }
  if (answer > 0 && answer != EBADF) {
    why = std::string("a read with O_DIRECT failed: ") + ::strerrordesc_np(answer);
    return std::nullopt;
  }
  // An empty or a write-only file proves nothing, yet its drive's blocks are known: the page-sized
  // guess is the careful one.
  return answer == 0 ? alignment : std::max(alignment, page_sized_alignment);
}

}  // namespace hippogriff
