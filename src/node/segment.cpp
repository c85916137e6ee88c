// System calls behind Segment.
#include "node/segment.hpp"

#include "base/error.hpp"
#include "node/legacy.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr int join_attempts_max = 100;

SegmentHeader own_header() {
  SegmentHeader header;
  header.magic = segment_magic;
  header.version = segment_version;
  header.header_bytes = sizeof(SegmentHeader);
  header.segment_bytes = sizeof(SegmentLayout);
  header.checksum = header_checksum(header);
  return header;
}

[[noreturn]] void refuse(const std::string& path, std::string detail) {
  throw Error({.status = Status::unsupported,
               .operation = "open segment",
               .object = path,
               .detail = std::move(detail)});
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

void write_whole(int fd, const void* data, std::size_t size_bytes, std::size_t offset) {
  const ssize_t written = ::pwrite(fd, data, size_bytes, static_cast<off_t>(offset));
  if (written != static_cast<ssize_t>(size_bytes)) {
    throw_io("write segment", {}, offset, written < 0 ? errno : EIO);
  }
}

// What a new segment holds: zeros, the header, the books with number 1, and who is carried over.
void write_contents(int fd, const Legacy& legacy) {
  for (const Legacy::Client& client : legacy.clients) {
    write_whole(fd,
                &client.identity,
                sizeof(client.identity),
                offsetof(SegmentLayout, identities) + client.index * sizeof(ClientIdentity));
    write_whole(fd,
                client.uses.data(),
                sizeof(client.uses),
                offsetof(SegmentLayout, boards) + client.index * sizeof(ClientBoard));
  }
  std::vector<std::byte> image;
  const std::uint64_t sequence = 1;
  encode_books(legacy.books, sequence, image);
  write_whole(fd, image.data(), image.size(), offsetof(SegmentLayout, halves) + half_bytes);
  write_whole(fd, &sequence, sizeof(sequence), offsetof(SegmentLayout, commit));
  const SegmentHeader header = own_header();
  write_whole(fd, &header, sizeof(header), 0);
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

Segment::Segment(SegmentPlace place, const Books& books, const Steps& steps)
    : place_(std::move(place)) {
  try {
    for (int attempt = 0; !join_or_make(books, steps); ++attempt) {
      close_file();
      if (attempt == join_attempts_max) {
        throw Error({.status = Status::busy,
                     .operation = "open segment",
                     .object = path(),
                     .detail = "other programs keep replacing it"});
      }
    }
    map();
    step(steps, "mapped");
  } catch (...) {
    close_file();
    throw;
  }
}

// False when it is to be tried again: somebody else was quicker, or a damaged one was removed.
bool Segment::join_or_make(const Books& books, const Steps& steps) {
  if (!open_existing()) {
    return create(books, steps);
  }
  refuse_foreign(fd_, place_);
  if (state() != State::sound) {
    remove_useless();
    return false;
  }
  return true;
}

Segment::~Segment() {
  if (shared_ != nullptr) {
    static_cast<void>(::munmap(shared_, sizeof(SegmentLayout)));
  }
  close_file();
}

bool Segment::open_existing() {
  fd_ = ::open(path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd_ >= 0) {
    return true;
  }
  if (errno != ENOENT) {
    throw_io("open segment", path(), no_offset, errno);
  }
  return false;
}

// The file has no name until all of it is there. False when somebody else was quicker.
bool Segment::create(const Books& books, const Steps& steps) {
  const std::string before = path().substr(0, path().find_last_of('/') + 1);
  const std::string folder = before.empty() ? "." : before;
  fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
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
  write_contents(fd_, legacy_of(place_, fd_, books));
  step(steps, "before link");
  const std::string source = "/proc/self/fd/" + std::to_string(fd_);
  if (::linkat(AT_FDCWD, source.c_str(), AT_FDCWD, path().c_str(), AT_SYMLINK_FOLLOW) == 0) {
    open_by_name();
    return true;
  }
  if (errno != EEXIST) {
    throw_io("link segment", path(), no_offset, errno);
  }
  close_file();
  return false;
}

// The kernel says of a descriptor by what name it was opened: by that legacy_of finds it.
void Segment::open_by_name() {
  const int named = ::open(path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  struct stat ours{};
  struct stat theirs{};
  if (named >= 0 && ::fstat(fd_, &ours) == 0 && ::fstat(named, &theirs) == 0 &&
      ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev) {
    close_file();
    fd_ = named;
  } else if (named >= 0) {  // somebody has replaced it already
    static_cast<void>(::close(named));
  }
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

// Throws for a sound segment of another version that somebody uses.
Segment::State Segment::state() const {
  struct stat facts{};
  SegmentHeader header;
  if (::fstat(fd_, &facts) != 0 || facts.st_size == 0) {
    return State::damaged;
  }
  const ssize_t size = ::pread(fd_, &header, sizeof(header), 0);
  if (size != static_cast<ssize_t>(sizeof(header))) {
    refuse(path(), "it is no segment: remove it, or name another");
  }
  if (header.magic != segment_magic && facts.st_size != static_cast<off_t>(sizeof(SegmentLayout))) {
    refuse(path(), "it is no segment: remove it, or name another");
  }
  if (header.magic != segment_magic || header.checksum != header_checksum(header)) {
    return State::damaged;
  }
  if (header.version != segment_version && !in_use(fd_)) {
    return State::outdated;
  }
  if (header.version != segment_version) {
    refuse(path(),
           "it is of version " + std::to_string(header.version) + " and this library of " +
               std::to_string(segment_version) + ": end the programs that use it");
  }
  const bool whole = header.segment_bytes == sizeof(SegmentLayout) &&
                     facts.st_size == static_cast<off_t>(sizeof(SegmentLayout));
  return whole ? State::sound : State::damaged;
}

// Under a lock, so that nobody removes the sound file that somebody else put there meanwhile. One
// of another version is closed to its clients first: a program of that version that has opened it
// finds no slot, or no name of it once it has one, and joins anew. (Those before version 4 look
// only after their first operation.)
void Segment::remove_useless() const {
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    static_cast<void>(::usleep(1000));
    return;
  }
  struct stat ours{};
  struct stat named{};
  if (::fstat(fd_, &ours) == 0 && ::lstat(path().c_str(), &named) == 0 &&
      ours.st_ino == named.st_ino && ours.st_dev == named.st_dev && may_be_removed() &&
      ::unlink(path().c_str()) != 0) {
    if (errno == EPERM) {  // a group's, in a folder where only who made a file may remove it
      refuse(path(),
             "it is damaged or of another version, and only user " + std::to_string(ours.st_uid) +
                 " may remove it");
    }
    throw_io("remove damaged segment", path(), no_offset, errno);
  }
}

bool Segment::may_be_removed() const {
  const State now = state();
  return now == State::damaged || (now == State::outdated && lock_out_clients(fd_));
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
