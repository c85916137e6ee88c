// /proc and locks.
#include "node/life.hpp"

#include "base/kernel_text.hpp"
#include "node/books_image.hpp"
#include "node/host_clock.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace hippogriff::node {

namespace {

// One that is there was missed by up to a quarter of the readings where many come and go.
constexpr int readings_max = 16;

std::optional<SlotLock> slot_lock_of(std::string_view line) {
  const auto lock = parse_open_file_lock(line);
  if (!lock || lock->offset_bytes < slots_lock_offset ||
      lock->offset_bytes >= slots_lock_offset + std::int64_t{clients_max}) {
    return std::nullopt;
  }
  return SlotLock{.device = makedev(lock->device_major, lock->device_minor),
                  .inode = lock->inode,
                  .client = static_cast<std::uint32_t>(lock->offset_bytes - slots_lock_offset)};
}

// Inodes alone do not tell files apart: each tmpfs, as containers have one each, counts from 1.
bool is_in_origin(const SlotLock& lock, const ClientIdentity& identity) {
  return lock.inode == identity.origin_inode &&
         (identity.origin_device == 0 || lock.device == identity.origin_device);
}

struct LocksText {
  std::string lines;
  bool is_exact = false;
};

// The kernel gives a page at a time, and finds where it was by counting: what ends meanwhile has
// others skipped, between two pages, that are there all the time. So each reading has its pages
// begin elsewhere, and two that are alike had nothing skipped.
std::optional<LocksText> read_locks(int reading) {
  const int fd = ::open("/proc/locks", O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return std::nullopt;
  }
  LocksText text;
  constexpr std::size_t page_bytes = 4096;
  constexpr std::size_t line_bytes = 64;  // about
  std::array<char, page_bytes> part{};
  std::size_t wanted = page_bytes - line_bytes * 3 * static_cast<std::size_t>(reading);
  int parts = 0;
  ssize_t size = 0;
  while ((size = ::read(fd, part.data(), wanted)) > 0) {
    text.lines.append(part.data(), static_cast<std::size_t>(size));
    wanted = page_bytes;
    ++parts;
  }
  static_cast<void>(::close(fd));
  text.is_exact = parts <= 1;
  return size == 0 ? std::optional(std::move(text)) : std::nullopt;
}

bool names_wanted(std::string_view lines, const std::function<bool(const SlotLock&)>& wanted) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const auto lock = slot_lock_of(lines.substr(0, end));
    if (lock && wanted(*lock)) {
      return true;
    }
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return false;
}

}  // namespace

std::uint64_t lock_device(int fd) noexcept {
  struct statfs system{};
  struct stat facts{};
  const bool known =
      ::fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC && ::fstat(fd, &facts) == 0;
  return known ? facts.st_dev : 0;
}

bool byte_is_locked(int fd, std::int64_t offset) noexcept {
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return ::fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

ProcessFacts process_facts(std::uint64_t pid) noexcept {
  std::array<char, 64> path{};
  static_cast<void>(std::snprintf(
      path.data(), path.size(), "/proc/%llu/stat", static_cast<unsigned long long>(pid)));
  const int fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    // /proc may hide the processes of others (hidepid=2); it cannot hide that they are there.
    const bool absent =
        errno == ENOENT && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno != EPERM);
    return {.state = absent ? ProcessFacts::State::absent : ProcessFacts::State::unknown};
  }
  std::array<char, 1024> text{};
  const ssize_t size = ::read(fd, text.data(), text.size());
  static_cast<void>(::close(fd));
  const auto stat =
      parse_process_stat({text.data(), static_cast<std::size_t>(std::max<ssize_t>(size, 0))});
  if (!stat) {
    return {};
  }
  const bool ended = (stat->state == 'Z' || stat->state == 'X') && stat->thread_count <= 1;
  return {.state = ended ? ProcessFacts::State::absent : ProcessFacts::State::running,
          .start_time = stat->start_ticks};
}

std::optional<bool> has_slot_lock(const std::function<bool(const SlotLock&)>& wanted) noexcept {
  std::optional<bool> found;
  try {
    std::string before;
    for (int reading = 0; reading < readings_max; ++reading) {
      std::optional<LocksText> text = read_locks(reading);
      if (!text) {
        return found;
      }
      found = names_wanted(text->lines, wanted);
      if (*found || text->is_exact || text->lines == before) {
        return found;
      }
      before = std::move(text->lines);
    }
  } catch (...) {
    return std::nullopt;
  }
  return found;
}

Viewer::Viewer() noexcept : own_(process_facts(static_cast<std::uint64_t>(::getpid()))) {
  struct stat facts{};
  pid_namespace_ = ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
  // When a process began is told by the clock of who asks. Nothing changes where it is not shifted:
  // earlier versions, which do not know of that, write the same.
  const std::int64_t shift_ns = time_namespace().boottime_ns;
  if (shift_ns != 0) {
    pid_namespace_ ^= checksum_of(std::as_bytes(std::span(&shift_ns, 1)));
  }
}

std::optional<bool> Viewer::process_lives(const ClientIdentity& identity) const noexcept {
  if (identity.start_time == 0 || own_.start_time == 0 ||
      identity.pid_namespace != pid_namespace_) {
    return std::nullopt;
  }
  const ProcessFacts facts = process_facts(identity.pid);
  if (facts.state == ProcessFacts::State::unknown) {
    return std::nullopt;
  }
  return facts.state == ProcessFacts::State::running && facts.start_time == identity.start_time;
}

bool Viewer::lives(const ClientIdentity& identity,
                   std::uint32_t client,
                   bool locked) const noexcept {
  const std::optional<bool> process = process_lives(identity);
  const bool lock_matters = identity.handed_over != 0 ? process != true : process != false;
  if (!locked && identity.origin_inode != 0 && lock_matters) {
    locked = has_slot_lock([&](const SlotLock& lock) {
               return lock.client == client && is_in_origin(lock, identity);
             }).value_or(true);
  }
  if (identity.handed_over != 0) {
    return locked || process.value_or(false);
  }
  return locked && process.value_or(true);
}

}  // namespace hippogriff::node
