// File over the system calls. Every result is checked; EINTR never leaves this file.
#include "storage/system_file.hpp"

#include "base/size_limit.hpp"
#include "storage/descriptor.hpp"
#include "storage/page_cache.hpp"
#include "storage/pieces.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::uint64_t offset_max = INT64_MAX;
constexpr std::uint64_t allocation_step_bytes_max = std::uint64_t{1} << 30;
constexpr std::uint64_t allocation_step_bytes_min = std::uint64_t{1} << 20;
constexpr int interruptions_max = 1000;

// Allocates a range in steps. Returns 0 or errno. A signal makes some file systems undo the whole
// step, so steps shrink until one fits between two signals.
int allocate_in_steps(int fd, int mode, Range range) {
  std::uint64_t step = allocation_step_bytes_max;
  int interruptions = 0;
  for (std::uint64_t at = range.offset; at < range.end();) {
    const std::uint64_t now = std::min(step, range.end() - at);
    if (::fallocate(fd, mode, static_cast<off_t>(at), static_cast<off_t>(now)) == 0) {
      at += now;
    } else if (errno == EINTR && ++interruptions < interruptions_max) {
      step = std::max(step / 2, allocation_step_bytes_min);
    } else {
      return errno;
    }
  }
  return 0;
}

// Allocates a range and makes the file as long. Returns 0 or errno. The file becomes longer only
// when all of it is there, except where the file system cannot tell the two apart (NFS).
int allocate_and_lengthen(int fd, Range range) {
  const int failure = allocate_in_steps(fd, FALLOC_FL_KEEP_SIZE, range);
  if (failure == EOPNOTSUPP) {
    return allocate_in_steps(fd, 0, range);
  }
  return failure != 0 ? failure : allocate_in_steps(fd, 0, {range.end() - 1, 1});
}

bool exceeds_size_limit(std::uint64_t size) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && size > limit.rlim_cur;
}

}  // namespace

std::string SystemFile::path() const {
  return opened_.path.empty() ? path_of_descriptor(fd()) : opened_.path;
}

void SystemFile::fail(const char* operation, std::uint64_t offset, int errno_value) const {
  throw_io(operation, path(), offset, errno_value);
}

void SystemFile::check_end(const char* operation,
                           std::uint64_t offset,
                           std::uint64_t size_bytes) const {
  if (offset > offset_max || size_bytes > offset_max - offset) {
    fail(operation, offset, EOVERFLOW);
  }
}

const FileSystemKind& SystemFile::filesystem() const {
  std::call_once(filesystem_once_,
                 [this] { filesystem_ = filesystem_of(fd(), opened_.identity.is_block_device); });
  return filesystem_;
}

std::string SystemFile::open_direct() const {
  if (filesystem().in_memory) {
    return filesystem().name + " is in memory: there is no drive to talk to";
  }
  const DirectAlignment told = direct_alignment_of(fd());
  if (told.told && told.alignment == 0) {
    return filesystem().name + " does not offer O_DIRECT for this file";
  }
  Descriptor direct = reopen(fd(), opened_.flags | O_DIRECT);
  if (!direct.valid() && (opened_.flags & O_ACCMODE) == O_RDWR) {
    // The descriptor may come from someone who is allowed more than this process.
    direct = reopen(fd(), open_mode(opened_.access) | O_DIRECT);
  }
  const int errno_value = errno;
  if (!direct.valid()) {
    return std::string("opening it with O_DIRECT failed: ") + ::strerrordesc_np(errno_value);
  }
  std::uint32_t alignment = told.alignment;
  if (!told.told) {
    std::string why;
    const auto proved = opened_.catalog->proved_alignment(direct.get(), opened_.identity, why);
    if (!proved) {
      return why;
    }
    alignment = *proved;
  }
  if (alignment > FileFacts::direct_alignment_max) {
    return filesystem().name + " wants O_DIRECT in steps of " + std::to_string(alignment) +
           " bytes: more than " + std::to_string(FileFacts::direct_alignment_max);
  }
  direct_ = std::move(direct);
  direct_alignment_ = alignment;
  return {};
}

void SystemFile::find_direct() const {
  std::call_once(direct_once_, [this] { why_not_direct_ = open_direct(); });
}

int SystemFile::direct_fd() const {
  find_direct();
  return direct_.get();
}

const FileFacts& SystemFile::facts() const {
  std::call_once(facts_once_, [this] {
    find_direct();
    const FileIdentity& identity = opened_.identity;
    facts_.path = path();
    facts_.filesystem = filesystem().name;
    facts_.in_memory = filesystem().in_memory;
    if (!facts_.in_memory) {
      facts_.drive = opened_.catalog->drive_of(fd(), identity.device_number);
    }
    facts_.device_number = identity.device_number;
    facts_.inode = identity.inode;
    facts_.size = identity.size;
    facts_.is_block_device = identity.is_block_device;
    facts_.direct = direct_.valid();
    facts_.direct_alignment = direct_alignment_;
    facts_.why_not_direct = why_not_direct_;
  });
  return facts_;
}

std::size_t SystemFile::read(std::span<std::byte> to, std::uint64_t offset) {
  check_end("read", offset, to.size());
  const ssize_t count = retry_interrupted(
      [&] { return ::pread(fd(), to.data(), to.size(), static_cast<off_t>(offset)); });
  if (count < 0) {
    fail("read", offset, errno);
  }
  return static_cast<std::size_t>(count);
}

std::size_t SystemFile::read_pieces(std::span<const iovec> to, std::uint64_t offset) {
  const ssize_t count = retry_interrupted([&] {
    return ::preadv(fd(), to.data(), static_cast<int>(to.size()), static_cast<off_t>(offset));
  });
  if (count < 0) {
    fail("read", offset, errno);
  }
  return static_cast<std::size_t>(count);
}

std::optional<std::size_t> SystemFile::read_cached_pieces(std::span<const iovec> to,
                                                          std::uint64_t offset,
                                                          PageCache expected) {
  const std::size_t size = size_of(to);
  check_end("read cached", offset, size);
  if (size == 0) {
    return 0;
  }
  if (filesystem().in_memory) {
    return read_pieces(to, offset);
  }
  // A read without waiting starts reading what it misses, all of the span: ask before, and read
  // only what is there. Pages past the end of the file are never there.
  const bool asks =
      expected == PageCache::unknown || no_wait_unsupported_.load(std::memory_order_relaxed);
  const auto known = asks ? resident_prefix_bytes(fd(), {offset, size}) : std::nullopt;
  const std::uint64_t wanted = known.value_or(size);
  if (wanted == 0) {
    return offset >= size_now() ? std::optional<std::size_t>(0) : std::nullopt;
  }
  std::vector<iovec> there;
  if (wanted < size) {
    there = part_of(to, 0, wanted);
    to = there;
  }
  if (!no_wait_unsupported_.load(std::memory_order_relaxed)) {
    const std::int64_t count = read_without_waiting(fd(), to, offset);
    if (count >= 0) {
      return static_cast<std::size_t>(count);
    }
    if (count == -EAGAIN) {
      return std::nullopt;
    }
    if (count != -EOPNOTSUPP) {
      fail("read cached", offset, static_cast<int>(-count));
    }
    no_wait_unsupported_.store(true, std::memory_order_relaxed);
  }
  // Without RWF_NOWAIT only cachestat's word remains, and a page evicted since makes this read wait
  // for the drive, which is slow and not wrong.
  return known ? std::optional(read_pieces(to, offset)) : std::nullopt;
}

std::size_t SystemFile::write(std::span<const std::byte> from, std::uint64_t offset) {
  check_end("write", offset, from.size());
  const SizeLimitScope size_limit;
  const ssize_t count = retry_interrupted(
      [&] { return ::pwrite(fd(), from.data(), from.size(), static_cast<off_t>(offset)); });
  if (count < 0) {
    fail("write", offset, errno);
  }
  return static_cast<std::size_t>(count);
}

std::optional<Residency> SystemFile::residency(Range range) {
  const std::uint64_t size = size_now();
  const std::uint64_t begin = std::min(range.offset, size);
  const Range inside{begin, std::min(range.size, size - begin)};
  if (filesystem().in_memory) {
    return Residency{inside.size, inside.size, true};
  }
  return page_cache_residency(fd(), inside);
}

std::uint64_t SystemFile::size_now() {
  if (opened_.identity.is_block_device) {
    return identify(fd(), opened_.path, "size").size;
  }
  struct stat status{};
  if (::fstat(fd(), &status) != 0) {
    fail("size", no_offset, errno);
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void SystemFile::allocate(Range range) {
  check_end("allocate", range.offset, range.size);
  if (opened_.identity.is_block_device) {
    if (range.end() > size_now()) {
      fail("allocate", range.offset, ENOSPC);
    }
    return;
  }
  if (range.empty()) {
    return;
  }
  const SizeLimitScope size_limit;
  const std::uint64_t size = size_now();
  if (range.end() > size && exceeds_size_limit(range.end())) {
    fail("allocate", range.offset, EFBIG);
  }
  const int failure = allocate_and_lengthen(fd(), range);
  if (failure == 0) {
    return;
  }
  if (failure != EOPNOTSUPP) {
    if (size_now() == size) {
      // Frees what is behind the end, which punching a hole does not do on ext4. Nobody has
      // lengthened the file, nor can while the drive is full.
      static_cast<void>(::ftruncate(fd(), static_cast<off_t>(size)));
    }
    fail("allocate", range.offset, failure);
  }
  // Lengthened by a byte of its own, never by ftruncate: the file may have grown further meanwhile.
  const std::byte last{};
  if (range.end() > size_now() && write({&last, 1}, range.end() - 1) != 1) {
    fail("allocate", range.end() - 1, ENOSPC);
  }
}

void SystemFile::truncate(std::uint64_t size) {
  check_end("truncate", size, 0);
  const SizeLimitScope size_limit;
  if (retry_interrupted([&] { return ::ftruncate(fd(), static_cast<off_t>(size)); }) != 0) {
    fail("truncate", size, errno);
  }
}

void SystemFile::sync() {
  if (retry_interrupted([&] { return ::fdatasync(fd()); }) != 0) {
    fail("sync", no_offset, errno);
  }
}

// Whether it can be written the next sync() tells.
void SystemFile::begin_write_back(Range range) noexcept {
  static_cast<void>(::sync_file_range(fd(),
                                      static_cast<off64_t>(range.offset),
                                      static_cast<off64_t>(range.size),
                                      SYNC_FILE_RANGE_WRITE));
}

// The kernel takes no more of a call than the drive's read-ahead: so much always.
void SystemFile::begin_read_ahead(Range range) noexcept {
  constexpr std::uint64_t step_bytes = std::uint64_t{128} << 10;
  for (std::uint64_t at = range.offset; at < range.end(); at += step_bytes) {
    const std::uint64_t size = std::min(step_bytes, range.end() - at);
    static_cast<void>(::posix_fadvise(
        fd(), static_cast<off_t>(at), static_cast<off_t>(size), POSIX_FADV_WILLNEED));
  }
}

std::span<std::byte> SystemFile::map(Range range, FileAccess access) {
  check_end("map", range.offset, range.size);
  const int protection = access == FileAccess::read ? PROT_READ : PROT_READ | PROT_WRITE;
  void* mapping =
      ::mmap(nullptr, range.size, protection, MAP_SHARED, fd(), static_cast<off_t>(range.offset));
  if (mapping == MAP_FAILED) {
    fail("map", range.offset, errno);
  }
  return {static_cast<std::byte*>(mapping), range.size};
}

void SystemFile::unmap(std::span<std::byte> mapping) noexcept {
  if (!mapping.empty()) {
    // It can fail only for addresses that map never gave.
    static_cast<void>(::munmap(mapping.data(), mapping.size()));
  }
}

}  // namespace hippogriff
