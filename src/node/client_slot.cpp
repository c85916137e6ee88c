// Life as the kernel tells it: open-file-description locks, and start times against pid reuse.
#include "node/client_slot.hpp"

#include "base/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>

namespace hippogriff::node {

namespace {

struct flock byte_range(short type, std::int64_t offset) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return range;
}

// True also when the kernel cannot say.
bool byte_is_locked(int fd, std::int64_t offset) noexcept {
  struct flock range = byte_range(F_WRLCK, offset);
  return ::fcntl(fd, F_OFD_GETLK, &range) != 0 || range.l_type != F_UNLCK;
}

std::uint64_t identity_checksum(const ClientIdentity& identity) {
  return checksum_of(std::as_bytes(std::span(&identity, 1)).subspan(sizeof(identity.checksum)));
}

// Of this open file; false when another one has it.
bool lock_byte(int fd, std::int64_t offset) noexcept {
  struct flock range = byte_range(F_WRLCK, offset);
  return ::fcntl(fd, F_OFD_SETLK, &range) == 0;
}

// Zeros when it is being written or damaged.
ClientIdentity read_identity(const SegmentLayout& shared, std::uint32_t client) {
  ClientIdentity identity;
  std::memcpy(&identity, &shared.identities[client], sizeof(identity));
  return identity.checksum == identity_checksum(identity) ? identity : ClientIdentity{};
}

}  // namespace

ProcessFacts process_facts(std::uint64_t pid) noexcept {
  std::array<char, 64> path{};
  static_cast<void>(std::snprintf(
      path.data(), path.size(), "/proc/%llu/stat", static_cast<unsigned long long>(pid)));
  const int fd = ::open(path.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return {.state = errno == ENOENT ? ProcessFacts::State::absent : ProcessFacts::State::unknown};
  }
  std::array<char, 1024> text{};
  const ssize_t size = ::read(fd, text.data(), text.size() - 1);
  static_cast<void>(::close(fd));
  // The name, in parentheses, may hold anything; the state is field 3.
  const char* at = size > 0 ? std::strrchr(text.data(), ')') : nullptr;
  if (at == nullptr || at + 2 >= text.data() + size) {
    return {};
  }
  const char state = at[2];
  at += 3;
  std::array<long long, 23> fields{};
  for (std::size_t field = 4; field < fields.size(); ++field) {
    char* end = nullptr;
    fields.at(field) = std::strtoll(at, &end, 10);
    if (end == at) {
      return {};
    }
    at = end;
  }
  const long long threads = fields[20];
  const auto start = static_cast<std::uint64_t>(fields[22]);
  const bool ended = (state == 'Z' || state == 'X') && threads <= 1;
  return {.state = ended ? ProcessFacts::State::absent : ProcessFacts::State::running,
          .start_time = start};
}

ClientSlot::ClientSlot(const Segment& segment)
    : segment_(segment), own_(process_facts(static_cast<std::uint64_t>(::getpid()))) {
  struct stat facts{};
  pid_namespace_ = ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
  while (!lock_byte(segment_.fd(), slots_lock_offset + index_)) {
    if (errno != EAGAIN && errno != EACCES) {
      throw_io("lock slot of segment", segment_.path(), no_offset, errno);
    }
    if (++index_ == clients_max) {
      throw Error({.status = Status::busy,
                   .operation = "join segment",
                   .object = segment_.path(),
                   .detail = "all " + std::to_string(clients_max) + " slots are taken"});
    }
  }
  write_identity();
}

void ClientSlot::write_identity() noexcept {
  ClientIdentity identity;
  std::memcpy(&identity, &segment_.shared().identities.at(index_), sizeof(identity));
  term_ = (identity.term + 1) % terms;
  identity.term = term_;
  identity.pid = static_cast<std::uint32_t>(::getpid());
  identity.start_time = own_.start_time;
  identity.pid_namespace = pid_namespace_;
  identity.checksum = identity_checksum(identity);
  std::memcpy(&segment_.shared().identities[index_], &identity, sizeof(identity));
}

bool ClientSlot::lives(std::uint32_t client) const noexcept {
  if (!byte_is_locked(segment_.fd(), slots_lock_offset + client)) {
    return false;
  }
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  // Without /proc, or in another container, the byte is all there is.
  if (identity.start_time == 0 || own_.start_time == 0 ||
      identity.pid_namespace != pid_namespace_) {
    return true;
  }
  const ProcessFacts facts = process_facts(identity.pid);
  if (facts.state == ProcessFacts::State::running) {
    return facts.start_time == identity.start_time;
  }
  return facts.state == ProcessFacts::State::unknown;
}

bool ClientSlot::lives_in_term(std::uint32_t client, std::uint32_t term) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return (identity.checksum == 0 || identity.term == term) && lives(client);
}

std::uint64_t ClientSlot::pid_of(std::uint32_t client) const noexcept {
  return read_identity(segment_.shared(), client).pid;
}

}  // namespace hippogriff::node
