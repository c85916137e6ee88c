// Page cache residency by cachestat, mincore and reads that do not wait.
#include "storage/page_cache.hpp"

#include "base/page_size.hpp"
#include "storage/descriptor.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

// Linux 6.5; the same number on every architecture.
constexpr long syscall_cachestat = 451;

struct CachestatRange {
  std::uint64_t offset;
  std::uint64_t size;
};

struct CachestatAnswer {
  std::uint64_t cached_pages;
  std::uint64_t dirty_pages;
  std::uint64_t writeback_pages;
  std::uint64_t evicted_pages;
  std::uint64_t recently_evicted_pages;
};

static_assert(sizeof(CachestatRange) == 16);
static_assert(sizeof(CachestatAnswer) == 40);

constexpr std::uint64_t window_bytes = 64 << 10;
constexpr std::uint64_t window_count_min = 64;
constexpr std::uint64_t window_count_max = 256;
constexpr std::uint64_t bytes_per_window = std::uint64_t{64} << 20;
constexpr std::uint64_t mincore_bytes_max = std::uint64_t{64} << 20;
constexpr std::uint64_t probe_count_max = 16;

std::uint64_t pages_touched(Range range) {
  return (align_up(range.end(), page_bytes()) - align_down(range.offset, page_bytes())) /
         page_bytes();
}

// The share of the range, the whole of it only when every page that it touches is there.
std::uint64_t bytes_of_pages(std::uint64_t present_pages, Range range) {
  const std::uint64_t touched = pages_touched(range);
  if (present_pages >= touched) {
    return range.size;
  }
  return std::min(present_pages * page_bytes(), range.size / touched * present_pages);
}

// The kernel shows the page cache of files that one owns or may write, and claims that every page
// of the others is there.
bool mincore_tells_truth(int fd) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) {
    return false;
  }
  if (status.st_uid == ::geteuid()) {
    return true;
  }
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  return ::faccessat(AT_FDCWD, link.c_str(), W_OK, AT_EACCESS) == 0;
}

// What a container sees of its image: cachestat counts no page of it, because the pages belong to
// the file below.
bool is_overlay(int fd) {
  struct statfs status{};
  return ::fstatfs(fd, &status) == 0 && status.f_type == OVERLAYFS_SUPER_MAGIC;
}

// How many of the pages of an aligned range are there.
std::optional<std::uint64_t> mincore_piece(int fd, Range pages) {
  void* mapping =
      ::mmap(nullptr, pages.size, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(pages.offset));
  if (mapping == MAP_FAILED) {
    return std::nullopt;
  }
  std::vector<unsigned char> present(pages.size / page_bytes());
  const int result = ::mincore(mapping, pages.size, present.data());
  static_cast<void>(::munmap(mapping, pages.size));
  if (result != 0) {
    return std::nullopt;
  }
  const auto count = std::count_if(
      present.begin(), present.end(), [](unsigned char page) { return (page & 1) != 0; });
  return static_cast<std::uint64_t>(count);
}

using ResidentBytes = std::optional<std::uint64_t> (*)(int fd, Range range);

// A large range by windows in its first, second, … n-th part. The windows step through their parts,
// so that a pattern with the parts' period is not taken for the whole.
std::optional<Residency> by_windows(int fd, Range range, ResidentBytes resident_bytes) {
  const std::uint64_t count =
      std::clamp(range.size / bytes_per_window, window_count_min, window_count_max);
  const std::uint64_t stride = range.size / count;
  std::uint64_t resident = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t slack = stride - std::min(stride, window_bytes);
    const std::uint64_t within = align_down(slack * (i * 7 % 16) / 16, page_bytes());
    const auto found =
        resident_bytes(fd, {range.offset + i * stride + within, std::min(stride, window_bytes)});
    if (!found) {
      return std::nullopt;
    }
    resident += *found;
  }
  const double fraction =
      static_cast<double>(resident) / static_cast<double>(count * std::min(stride, window_bytes));
  const auto bytes = static_cast<std::uint64_t>(fraction * static_cast<double>(range.size));
  return Residency{std::min(bytes, range.size), range.size, false};
}

}  // namespace

std::optional<std::uint64_t> resident_bytes_by_cachestat(int fd, Range range) {
  CachestatRange asked{range.offset, range.size};
  CachestatAnswer answer{};
  if (::syscall(syscall_cachestat, fd, &asked, &answer, 0U) != 0) {
    return std::nullopt;
  }
  if (answer.cached_pages == 0 && is_overlay(fd)) {
    return std::nullopt;
  }
  return bytes_of_pages(answer.cached_pages, range);
}

std::optional<std::uint64_t> resident_bytes_by_mincore(int fd, Range range) {
  if (!mincore_tells_truth(fd)) {
    return std::nullopt;
  }
  const std::uint64_t end = align_up(range.end(), page_bytes());
  std::uint64_t present_pages = 0;
  for (std::uint64_t at = align_down(range.offset, page_bytes()); at < end;) {
    const std::uint64_t size = std::min(end - at, mincore_bytes_max);
    const auto found = mincore_piece(fd, {at, size});
    if (!found) {
      return std::nullopt;
    }
    present_pages += *found;
    at += size;
  }
  return bytes_of_pages(present_pages, range);
}

std::optional<std::uint64_t> resident_bytes_by_probing(int fd, Range range) {
  const std::uint64_t count = std::min({pages_touched(range), probe_count_max, range.size});
  std::uint64_t hits = 0;
  // From the end: a probe of what is not there has the kernel read on from there.
  for (std::uint64_t i = count; i-- > 0;) {
    std::array<std::byte, 1> byte{};
    const std::uint64_t offset = std::min(range.offset + range.size / count * i, range.end() - 1);
    const iovec piece{byte.data(), byte.size()};
    const std::int64_t result = read_without_waiting(fd, {&piece, 1}, offset);
    if (result < 0 && result != -EAGAIN) {
      return std::nullopt;
    }
    hits += result == 1 ? 1 : 0;
  }
  return range.size / count * hits + (hits == count ? range.size % count : 0);
}

std::optional<Residency> page_cache_residency(int fd, Range range) {
  if (range.empty()) {
    return Residency{};
  }
  const bool small = range.size <= residency_exact_bytes_max;
  for (const ResidentBytes way : {&resident_bytes_by_cachestat, &resident_bytes_by_mincore}) {
    if (!small) {
      if (auto estimate = by_windows(fd, range, way)) {
        return estimate;
      }
    } else if (const auto bytes = way(fd, range)) {
      return Residency{*bytes, range.size, true};
    }
  }
  if (const auto bytes = resident_bytes_by_probing(fd, range)) {
    return Residency{*bytes, range.size, false};
  }
  return std::nullopt;
}

std::optional<std::uint64_t> resident_prefix_bytes(int fd, Range range) {
  const auto whole = resident_bytes_by_cachestat(fd, range);
  if (!whole || *whole == range.size || *whole == 0) {
    return whole;
  }
  // Halves: everything before `known` is there, and a gap begins before `known + left`.
  std::uint64_t known = 0;
  std::uint64_t left = range.size;
  for (;;) {
    const std::uint64_t begin = range.offset + known;
    const std::uint64_t second_page = align_down(begin, page_bytes()) + page_bytes();
    if (second_page >= begin + left) {
      break;
    }
    const std::uint64_t half =
        std::max(align_down(begin + left / 2, page_bytes()), second_page) - begin;
    const auto found = resident_bytes_by_cachestat(fd, {begin, half});
    if (!found) {
      return std::nullopt;
    }
    const bool there = *found == half;
    known += there ? half : 0;
    left = there ? left - half : half;
  }
  const auto last = resident_bytes_by_cachestat(fd, {range.offset + known, left});
  if (!last) {
    return std::nullopt;
  }
  return *last == left ? known + left : known;
}

std::int64_t read_without_waiting(int fd, std::span<const iovec> to, std::uint64_t offset) {
  const ssize_t count = retry_interrupted([&] {
    return ::preadv2(
        fd, to.data(), static_cast<int>(to.size()), static_cast<off_t>(offset), RWF_NOWAIT);
  });
  if (count >= 0) {
    return count;
  }
  return errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

}  // namespace hippogriff
