// System calls behind Segment.
#include "node/segment.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "base/size_limit.hpp"
#include "node/host_clock.hpp"
#include "node/legacy.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

// Tries at least, and for how long: who removes it faster than it is made leaves it for long enough
// by chance.
constexpr int join_attempts_min = 100;
constexpr std::chrono::milliseconds removed_patience{2000};
// So long who makes a segment may take that others wait for, twice as long after each that was
// given up: one that is stopped does not go on, and on a slow machine one has to get to the end.
constexpr std::chrono::milliseconds maker_patience_first{2000};
constexpr std::chrono::milliseconds maker_patience_max{16'000};
// One that goes on is waited for, but not for ever.
constexpr std::chrono::milliseconds slow_maker_patience{60'000};
// How often they look: ever less often, and each after another time. Hundreds that go on at once
// would keep who has the lock of the books from the processor.
constexpr std::chrono::microseconds maker_look_interval_first{500};
constexpr std::chrono::microseconds maker_look_interval_max{20'000};
// Instead of the checksum, which no header has: programs of every version see a damaged segment,
// not somebody's file.
constexpr std::uint64_t unfinished_checksum = 0;

SegmentHeader own_header() {
  SegmentHeader header;
  header.magic = segment_magic;
  header.version = segment_version;
  header.header_bytes = sizeof(SegmentHeader);
  header.segment_bytes = sizeof(SegmentLayout);
  header.checksum = header_checksum(header);
  return header;
}

[[noreturn]] void refuse_stopped(const std::string& path) {
  throw Error({.status = Status::busy,
               .operation = "open segment",
               .object = path,
               .detail = "another program makes it and does not go on; is it stopped?"});
}

void write_whole(int fd, const void* data, std::size_t size_bytes, std::size_t offset) {
  const SizeLimitScope size_limit;
  const ssize_t written = ::pwrite(fd, data, size_bytes, static_cast<off_t>(offset));
  if (written != static_cast<ssize_t>(size_bytes)) {
    throw_io("write segment", {}, offset, written < 0 ? errno : EIO);
  }
}

// How far who makes a segment has come, in a word that has no other use until it is finished.
void show_progress(int fd, std::uint64_t progress) {
  write_whole(fd, &progress, sizeof(progress), offsetof(SegmentLayout, commit));
}

std::uint64_t shown_progress(int fd) {
  std::uint64_t progress = 0;
  static_cast<void>(::pread(fd, &progress, sizeof(progress), offsetof(SegmentLayout, commit)));
  return progress;
}

// Of all of a file, and all that clients of any version lock beyond its end.
struct flock whole_range() {
  struct flock anywhere{};
  anywhere.l_type = F_WRLCK;
  anywhere.l_whence = SEEK_SET;
  return anywhere;
}

// Until the file is closed no client can take a slot; false when one has.
bool lock_out_clients(int fd) {
  struct flock anywhere = whole_range();
  return ::fcntl(fd, F_OFD_SETLK, &anywhere) == 0;
}

// Who finishes a segment, or replaces it, has its first byte locked. False when somebody else has.
bool lock_to_make(int fd, const std::string& path) {
  struct flock first = whole_range();
  first.l_len = 1;
  if (::fcntl(fd, F_OFD_SETLK, &first) == 0) {
    return true;
  }
  if (errno != EAGAIN && errno != EACCES) {
    throw_io("lock segment", path, no_offset, errno);
  }
  return false;
}

// All of it at once: who finds no slot free asks for the first byte. A child that was forked
// meanwhile would keep it when the file is closed.
void unlock(int fd) {
  struct flock anywhere = whole_range();
  anywhere.l_type = F_UNLCK;
  static_cast<void>(::fcntl(fd, F_OFD_SETLK, &anywhere));
}

// What a new segment holds but for its header: the books with number 1, who is carried over, and
// zeros, also where a maker wrote that was killed.
void write_contents(int fd, const Legacy& legacy) {
  std::vector<std::byte> contents(sizeof(SegmentLayout));
  const auto put = [&](std::size_t offset, const auto& values) {
    std::memcpy(contents.data() + offset, std::data(values), std::span(values).size_bytes());
  };
  for (const Legacy::Client& client : legacy.clients) {
    put(offsetof(SegmentLayout, identities) + client.index * sizeof(ClientIdentity),
        std::span(&client.identity, 1));
    put(offsetof(SegmentLayout, boards) + client.index * sizeof(ClientBoard), client.uses);
  }
  std::vector<std::byte> image;
  const std::uint64_t sequence = 1;
  encode_books(legacy.books, sequence, image);
  put(offsetof(SegmentLayout, halves) + half_bytes, image);
  put(offsetof(SegmentLayout, commit), std::span(&sequence, 1));
  constexpr std::size_t begin = sizeof(SegmentHeader);
  write_whole(fd, contents.data() + begin, contents.size() - begin, begin);
}

// fstat of glibc before 2.39 has the kernel read an empty path as well, in every operation. Some
// sandboxes allow that alone.
bool stat_quickly(int fd, struct stat& facts) noexcept {
#if defined(__LP64__) && \
    (defined(__x86_64__) || defined(__aarch64__))  // their struct stat is the kernel's
  if (::syscall(SYS_fstat, fd, &facts) == 0) {
    return true;
  }
#endif
  return ::fstat(fd, &facts) == 0;
}

}  // namespace

std::uint64_t header_checksum(const SegmentHeader& header) {
  return checksum_of(std::as_bytes(std::span(&header, 1)).first(offsetof(SegmentHeader, checksum)));
}

bool in_use(int fd) {
  struct flock anywhere = whole_range();
  return ::fcntl(fd, F_OFD_GETLK, &anywhere) != 0 ||
         (anywhere.l_type != F_UNLCK && anywhere.l_start != 0);
}

bool unfinished(int fd) {
  const SegmentHeader own = own_header();
  SegmentHeader header;
  return ::pread(fd, &header, sizeof(header), 0) == static_cast<ssize_t>(sizeof(header)) &&
         header.magic == own.magic && header.version == own.version &&
         header.segment_bytes == own.segment_bytes && header.checksum == unfinished_checksum &&
         !in_use(fd);
}

Segment::Segment(SegmentPlace place, const Books& books, const Steps& steps)
    : place_(std::move(place)), maker_patience_(maker_patience_first) {
  try {
    const auto begin = std::chrono::steady_clock::now();
    for (int attempt = 0; !join_or_make(books, steps); ++attempt) {
      close_file();
      if (attempt >= join_attempts_min &&
          std::chrono::steady_clock::now() - begin > removed_patience) {
        throw Error({.status = Status::busy,
                     .operation = "open segment",
                     .object = path(),
                     .detail = "other programs keep replacing it"});
      }
    }
    map();
    step(steps, "mapped");
  } catch (...) {
    if (fd_ >= 0) {
      unlock(fd_);
    }
    close_file();
    throw;
  }
}

// False when it is to be tried again: it was removed, by us or by somebody else.
bool Segment::join_or_make(const Books& books, const Steps& steps) {
  if (!open_existing()) {
    create(steps);
    if (!open_existing()) {
      return false;
    }
  }
  refuse_foreign(fd_, place_);
  if (state() == State::sound) {
    return true;
  }
  const bool ours = await_maker();
  const State now = state();
  if (now == State::unfinished && ours) {
    return finish(books, steps);
  }
  if (now != State::sound) {
    remove_useless(!ours);
  }
  unlock(fd_);
  return now == State::sound;
}

Segment::~Segment() {
  if (shared_ != nullptr) {
    static_cast<void>(::munmap(shared_, sizeof(SegmentLayout)));
  }
  close_file();
}

bool Segment::open_existing() {
  fd_ = own_descriptor(::open(path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd_ >= 0) {
    return true;
  }
  if (errno != ENOENT) {
    throw_io("open segment", path(), no_offset, errno);
  }
  return false;
}

// Without a name until it has its size and its owner. Who opens it by that finishes it: its maker,
// or another one where that is quicker, or the maker is killed.
void Segment::create(const Steps& steps) {
  const SizeLimitScope size_limit;
  const std::string before = path().substr(0, path().find_last_of('/') + 1);
  const std::string folder = before.empty() ? "." : before;
  fd_ = own_descriptor(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd_ < 0) {
    throw_io("create segment", path(), no_offset, errno);
  }
  const auto size = static_cast<off_t>(sizeof(SegmentLayout));
  const int refused = steps.allocate != nullptr ? steps.allocate(steps.context, fd_, size)
                                                : ::posix_fallocate(fd_, 0, size);
  if (refused != 0) {
    throw_io("allocate segment", path(), no_offset, refused);
  }
  share_with_group();
  SegmentHeader header = own_header();
  header.checksum = unfinished_checksum;
  write_whole(fd_, &header, sizeof(header), 0);
  step(steps, "before link");
  const std::string source = "/proc/self/fd/" + std::to_string(fd_);
  if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path().c_str(), AT_SYMLINK_FOLLOW) != 0 &&
      errno != EEXIST) {
    throw_io("link segment", path(), no_offset, errno);
  }
  close_file();
  step(steps, "linked");
}

// Says who may open the new file, before it has a name.
void Segment::share_with_group() const {
  if (place_.group && ::fchown(fd_, static_cast<uid_t>(-1), *place_.group) != 0) {
    throw_io("give segment to group " + std::to_string(*place_.group) + " (is this user in it?)",
             path(),
             no_offset,
             errno);
  }
  if (::fchmod(fd_, place_.group ? 0660 : 0600) != 0) {
    throw_io("create segment", path(), no_offset, errno);
  }
}

// True with the maker's lock: nobody else makes it. False when somebody has finished or removed it,
// or does neither for too long.
bool Segment::await_maker() {
  auto begin = std::chrono::steady_clock::now();  // of what it does now
  slow_maker_deadline_ = std::min(slow_maker_deadline_, begin + slow_maker_patience);
  std::uint64_t progress = shown_progress(fd_);
  std::chrono::microseconds interval = maker_look_interval_first;
  while (!lock_to_make(fd_, path())) {
    struct stat facts{};
    if (::fstat(fd_, &facts) != 0 || facts.st_nlink == 0) {
      return false;
    }
    const State seen = state();
    if (seen == State::sound) {
      return false;
    }
    const auto now = std::chrono::steady_clock::now();
    if (const std::uint64_t shown = shown_progress(fd_);
        seen == State::unfinished && shown != progress && now < slow_maker_deadline_) {
      progress = shown;
      begin = now;
    }
    if (now - begin > maker_patience_) {
      if (maker_patience_ == maker_patience_max) {
        refuse_stopped(path());
      }
      maker_patience_ *= 2;
      return false;
    }
    std::this_thread::sleep_for(interval * (1 + ::getpid() % 64) / 32);
    interval = std::min(interval * 2, maker_look_interval_max);
  }
  return true;
}

// Under the maker's lock. Looks for removed segments that are in use only now that its name is
// taken: none can come to be used and be removed any more that it does not see, unless it is
// removed itself, and then nobody uses it. False when it was. The order of generations is that in
// which segments were used: this one's begins after all others were removed.
bool Segment::finish(const Books& books, const Steps& steps) {
  step(steps, "before look");
  Books fresh = books;
  fresh.generation = static_cast<std::uint64_t>(monotonic_ns());
  std::uint64_t progress = shown_progress(fd_);  // a killed maker's
  const Legacy legacy = legacy_of(place_, fd_, fresh, [&] {
    step(steps, "looking");
    show_progress(fd_, ++progress);
  });
  step(steps, "looked");
  write_contents(fd_, legacy);
  step(steps, "before finish");
  const bool named = intact();
  if (named) {
    const std::uint64_t checksum = own_header().checksum;
    write_whole(fd_, &checksum, sizeof(checksum), offsetof(SegmentHeader, checksum));
    step(steps, "finished");
  }
  unlock(fd_);
  return named;
}

// Throws for a sound segment of another version that somebody uses.
Segment::State Segment::state() const {
  struct stat facts{};
  SegmentHeader header;
  if (::fstat(fd_, &facts) != 0 || facts.st_size == 0) {
    return State::damaged;
  }
  const ssize_t size = ::pread(fd_, &header, sizeof(header), 0);
  if (size != static_cast<ssize_t>(sizeof(header))) {
    refuse_segment(path(), "it is no segment: remove it, or name another");
  }
  if (header.magic != segment_magic && facts.st_size != static_cast<off_t>(sizeof(SegmentLayout))) {
    refuse_segment(path(), "it is no segment: remove it, or name another");
  }
  if (header.magic != segment_magic || header.checksum != header_checksum(header)) {
    const bool whole = facts.st_size == static_cast<off_t>(sizeof(SegmentLayout));
    return whole && unfinished(fd_) ? State::unfinished : State::damaged;
  }
  if (header.version != segment_version && !in_use(fd_)) {
    return State::outdated;
  }
  if (header.version != segment_version) {
    refuse_segment(path(),
                   "it is of version " + std::to_string(header.version) + " and this library of " +
                       std::to_string(segment_version) + ": end the programs that use it");
  }
  const bool whole = header.segment_bytes == sizeof(SegmentLayout) &&
                     facts.st_size == static_cast<off_t>(sizeof(SegmentLayout));
  return whole ? State::sound : State::damaged;
}

// Under a lock, so that nobody removes the sound file that somebody else put there meanwhile; who
// has waited long enough goes without, for who has it may be stopped. One of another version is
// closed to its clients first: a program of that version that has opened it finds no slot, or no
// name of it once it has one, and joins anew. (Those before version 4 look only after their first
// operation.)
void Segment::remove_useless(bool waited) const {
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && !waited) {
    static_cast<void>(::usleep(1000));
    return;
  }
  struct stat ours{};
  struct stat named{};
  if (::fstat(fd_, &ours) == 0 && ::lstat(path().c_str(), &named) == 0 &&
      ours.st_ino == named.st_ino && ours.st_dev == named.st_dev && may_be_removed() &&
      ::unlink(path().c_str()) != 0) {
    if (errno == EPERM) {  // a group's, in a folder where only who made a file may remove it
      if (state() == State::sound) {
        return;  // its maker was quicker
      }
      if (unfinished(fd_)) {
        refuse_stopped(path());
      }
      refuse_segment(path(),
                     "it is damaged or of another version, and only user " +
                         std::to_string(ours.st_uid) + " may remove it");
    }
    throw_io("remove damaged segment", path(), no_offset, errno);
  }
}

bool Segment::may_be_removed() const {
  const State now = state();
  return now == State::damaged || now == State::unfinished ||
         (now == State::outdated && lock_out_clients(fd_));
}

bool Segment::being_replaced() const noexcept {
  struct flock first = whole_range();
  first.l_len = 1;
  return ::fcntl(fd_, F_OFD_GETLK, &first) == 0 && first.l_type != F_UNLCK;
}

void Segment::map() {
  void* memory = ::mmap(nullptr, sizeof(SegmentLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) {
    throw_io("map segment", path(), no_offset, errno);
  }
  shared_ = static_cast<SegmentLayout*>(memory);
}

bool Segment::intact() const noexcept {
  struct stat facts{};
  return stat_quickly(fd_, facts) && facts.st_nlink != 0 &&
         facts.st_size == static_cast<off_t>(sizeof(SegmentLayout));
}

bool Segment::readable() const noexcept {
  struct stat facts{};
  return ::fstat(fd_, &facts) == 0 && facts.st_size == static_cast<off_t>(sizeof(SegmentLayout));
}

void Segment::close_file() noexcept {
  if (fd_ >= 0) {
    static_cast<void>(::close(fd_));
    fd_ = -1;
  }
}

}  // namespace hippogriff::node
