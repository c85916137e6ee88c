// Making files, steering the page cache, comparing contents.
#include "transfer/bench_file.hpp"

#include "transfer/threads.hpp"

#include <fcntl.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace bench {

namespace {

constexpr std::size_t piece = std::size_t{4} << 20U;
constexpr long tmpfs_magic = 0x01021994;

[[noreturn]] void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

// Little-endian word `index` of a pattern: an odd multiplier visits all 64-bit values.
std::uint64_t pattern_word(std::uint64_t index, std::uint64_t seed) {
  return (index + (seed << 40U)) * 0x9E3779B97F4A7C15U;
}

// Runs work(thread, piece's extent) over [0, size) on all cores; the first exception comes out.
void over_pieces(std::uint64_t size,
                 unsigned threads_max,
                 const std::function<void(unsigned, Extent)>& work) {
  std::atomic<std::uint64_t> next = 0;
  run_threads(std::clamp(std::thread::hardware_concurrency(), 1U, threads_max), [&](unsigned t) {
    for (;;) {
      const std::uint64_t offset = next.fetch_add(piece);
      if (offset >= size) {
        return;
      }
      work(t, {offset, std::min<std::uint64_t>(piece, size - offset)});
    }
  });
}

// Threads that share `memory` as one piece each.
unsigned piece_threads(std::span<std::byte> memory) {
  return static_cast<unsigned>(std::max<std::size_t>(1, memory.size() / piece));
}

std::string filesystem_name(const std::string& directory, bool& in_memory) {
  struct statfs facts{};
  if (statfs(directory.c_str(), &facts) != 0) {
    throw_errno("statfs " + directory);
  }
  in_memory = facts.f_type == tmpfs_magic;
  std::string best_type = "unknown";
  std::size_t best_length = 0;
  char* resolved = realpath(directory.c_str(), nullptr);
  const std::string path = std::string(resolved != nullptr ? resolved : directory.c_str()) + "/";
  free(resolved);
  std::ifstream mounts("/proc/self/mounts");
  std::string device;
  std::string point;
  std::string type;
  while (mounts >> device >> point >> type) {
    mounts.ignore(4096, '\n');
    const std::string prefix = point == "/" ? point : point + "/";
    if (path.starts_with(prefix) && prefix.size() >= best_length) {
      best_length = prefix.size();
      best_type = type;
    }
  }
  return best_type;
}

void drop(int fd, Extent extent, const std::string& path) {
  const int status = posix_fadvise(
      fd, static_cast<off_t>(extent.offset), static_cast<off_t>(extent.size), POSIX_FADV_DONTNEED);
  if (status != 0) {
    throw std::system_error(status, std::generic_category(), "posix_fadvise " + path);
  }
}

// As a program that reads the file from its start leaves it: read piecemeal or without readahead,
// the page cache would be made of single pages.
void warm(int fd, Extent extent, const std::string& path) {
  drop(fd, extent, path);
  std::vector<std::byte> buffer(piece);
  for (std::uint64_t at = 0; at < extent.size; at += piece) {
    const std::uint64_t count = std::min<std::uint64_t>(piece, extent.size - at);
    read_fully(fd, buffer.data(), count, extent.offset + at);
  }
}

struct CacheStat {
  std::uint64_t cached = 0;
  std::uint64_t dirty = 0;
  std::uint64_t writeback = 0;
  std::uint64_t evicted = 0;
  std::uint64_t recently_evicted = 0;
};

double cached_share_of(int fd, Extent extent) {
  constexpr long cachestat_number = 451;  // the same on every architecture
  constexpr std::uint64_t page = 4096;
  CacheStat stat;
  std::uint64_t range[2] = {extent.offset, extent.size};
  if (extent.size == 0 || syscall(cachestat_number, fd, range, &stat, 0) != 0) {
    return -1;
  }
  const std::uint64_t pages = (extent.end() + page - 1) / page - extent.offset / page;
  return static_cast<double>(stat.cached) / static_cast<double>(pages);
}

}  // namespace

Descriptor::Descriptor(const std::string& path, int flags)
    : fd_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    throw_errno("open " + path);
  }
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

void read_fully(int fd, std::byte* to, std::size_t size, std::uint64_t offset) {
  while (size > 0) {
    const ssize_t count = pread(fd, to, size, static_cast<off_t>(offset));
    if (count < 0 && errno != EINTR) {
      throw_errno("pread at " + std::to_string(offset));
    }
    if (count == 0) {
      throw std::runtime_error("the file ends at " + std::to_string(offset));
    }
    const auto done = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    to += done;
    size -= done;
    offset += done;
  }
}

void write_fully(int fd, const std::byte* from, std::size_t size, std::uint64_t offset) {
  while (size > 0) {
    const ssize_t count = pwrite(fd, from, size, static_cast<off_t>(offset));
    if (count < 0 && errno != EINTR) {
      throw_errno("pwrite at " + std::to_string(offset));
    }
    const auto done = static_cast<std::size_t>(std::max<ssize_t>(count, 0));
    from += done;
    size -= done;
    offset += done;
  }
}

Place find_place(const std::string& directory) {
  Place place;
  place.directory = directory;
  place.filesystem = filesystem_name(directory, place.in_memory);
  return place;
}

void fill_pattern(std::span<std::byte> to, std::uint64_t offset, std::uint64_t seed) {
  const std::uint64_t first = offset / 8;
  for (std::size_t i = 0; i + 8 <= to.size(); i += 8) {
    const std::uint64_t word = pattern_word(first + i / 8, seed);
    std::memcpy(to.data() + i, &word, 8);
  }
}

std::uint64_t find_difference(std::span<const std::byte> bytes,
                              std::uint64_t offset,
                              std::uint64_t seed) {
  const std::uint64_t first = offset / 8;
  for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    if (word != pattern_word(first + i / 8, seed)) {
      return offset + i;
    }
  }
  return UINT64_MAX;
}

void create_source(const Place& place, std::uint64_t size) {
  const Descriptor file(place.source(), O_RDWR | O_CREAT | O_TRUNC);
  over_pieces(size, 4, [&](unsigned /*thread*/, Extent part) {
    std::vector<std::byte> buffer(part.size);
    fill_pattern(buffer, part.offset, 1);
    write_fully(file.get(), buffer.data(), part.size, part.offset);
  });
  if (fdatasync(file.get()) != 0) {
    throw_errno("fdatasync " + place.source());
  }
  if (place.in_memory) {
    // The kernel makes each page an active one at the first read after its writing, which takes as
    // long as the read: whoever came first would pay for all.
    warm(file.get(), {0, size}, place.source());
  }
}

void set_cached(const Place& place, std::uint64_t size, std::span<const Extent> cached) {
  if (place.in_memory) {
    return;
  }
  const Descriptor file(place.source(), O_RDONLY);
  std::uint64_t end = 0;
  std::vector<Extent> cold;
  for (const Extent& extent : cached) {
    if (extent.offset > end) {
      cold.push_back({end, extent.offset - end});
    }
    end = extent.end();
  }
  if (end < size) {
    cold.push_back({end, size - end});
  }
  for (const Extent& extent : cached) {
    const double share = cached_share_of(file.get(), extent);
    if (share < 1.0) {
      warm(file.get(), extent, place.source());
    }
  }
  for (const Extent& extent : cold) {
    drop(file.get(), extent, place.source());
    if (cached_share_of(file.get(), extent) > 0.001 && cached.empty()) {
      // Something else keeps pages; root can drop everything.
      std::ofstream("/proc/sys/vm/drop_caches") << "1";
    }
  }
}

double cached_share(const std::string& path, std::uint64_t size) {
  const Descriptor file(path, O_RDONLY);
  return cached_share_of(file.get(), {0, size});
}

void clear_target(const Place& place) {
  const Descriptor file(place.target(), O_RDWR | O_CREAT | O_TRUNC);
  if (!place.in_memory && fsync(file.get()) != 0) {
    throw_errno("fsync " + place.target());
  }
}

std::string verify_device(ReferenceDevice& device,
                          std::uint64_t address,
                          Extent file,
                          std::uint64_t seed,
                          std::span<std::byte> pinned) {
  std::atomic<std::uint64_t> wrong = UINT64_MAX;
  over_pieces(file.size, piece_threads(pinned), [&](unsigned thread, Extent part) {
    device.make_current();
    const std::span<std::byte> buffer = pinned.subspan(thread * piece, part.size);
    device.to_host(buffer.data(), address + part.offset, part.size);
    const std::uint64_t at = find_difference(buffer, file.offset + part.offset, seed);
    if (at < wrong) {
      wrong = at;
    }
  });
  return wrong == UINT64_MAX ? ""
                             : "device memory differs from the file near " + std::to_string(wrong);
}

std::string verify_target(const Place& place, std::uint64_t size, std::uint64_t seed, bool whole) {
  const Descriptor file(place.target(), O_RDONLY);
  const off_t end = lseek(file.get(), 0, SEEK_END);
  if (end < 0 || static_cast<std::uint64_t>(end) != size) {
    return "the file has " + std::to_string(end) + " bytes, not " + std::to_string(size);
  }
  std::atomic<std::uint64_t> wrong = UINT64_MAX;
  over_pieces(size, 16, [&](unsigned /*thread*/, Extent part) {
    // A sample is the first and last piece and one in 16 between.
    if (!whole && part.offset / piece % 16 != 0 && part.end() != size) {
      return;
    }
    std::vector<std::byte> buffer(part.size);
    read_fully(file.get(), buffer.data(), part.size, part.offset);
    const std::uint64_t at = find_difference(buffer, part.offset, seed);
    if (at < wrong) {
      wrong = at;
    }
  });
  return wrong == UINT64_MAX ? "" : "the file is wrong near " + std::to_string(wrong);
}

void fill_device(ReferenceDevice& device,
                 std::uint64_t address,
                 std::uint64_t size,
                 std::span<std::byte> pinned) {
  over_pieces(size, piece_threads(pinned), [&](unsigned thread, Extent part) {
    device.make_current();
    const std::span<std::byte> buffer = pinned.subspan(thread * piece, part.size);
    fill_pattern(buffer, part.offset, 2);
    device.to_device(address + part.offset, buffer.data(), part.size);
  });
}

}  // namespace bench
