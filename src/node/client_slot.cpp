// Life as the kernel tells it: open-file-description locks, and start times against pid reuse.
#include "node/client_slot.hpp"

#include "base/error.hpp"
#include "node/board.hpp"
#include "node/layout.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
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

std::uint64_t monotonic_ticks() noexcept {
  timespec now{};
  static_cast<void>(::clock_gettime(CLOCK_MONOTONIC, &now));
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

bool parse_number(std::string_view text, std::uint32_t& number) noexcept {
  const auto result = std::from_chars(text.begin(), text.end(), number);
  return result.ec == std::errc{} && result.ptr == text.end();
}

void unlock_byte(int fd, std::int64_t offset) noexcept {
  struct flock range = byte_range(F_UNLCK, offset);
  static_cast<void>(::fcntl(fd, F_OFD_SETLK, &range));
}

}  // namespace

ClientIdentity read_identity(const SegmentLayout& shared, std::uint32_t client) noexcept {
  ClientIdentity identity;
  std::memcpy(&identity, &shared.identities.at(client), sizeof(identity));
  return identity.checksum == identity_checksum(identity) ? identity : ClientIdentity{};
}

std::string Leader::text() const {
  return std::to_string(client) + ":" + std::to_string(term);
}

std::optional<Leader> Leader::parse(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  Leader leader;
  if (colon == std::string_view::npos || !parse_number(text.substr(0, colon), leader.client) ||
      !parse_number(text.substr(colon + 1), leader.term) || leader.client >= clients_max) {
    return std::nullopt;
  }
  return leader;
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

ClientSlot::ClientSlot(const Segment& segment,
                       std::optional<Leader> leader,
                       std::uint32_t served_pid)
    : segment_(segment),
      served_pid_(served_pid),
      own_(process_facts(static_cast<std::uint64_t>(::getpid()))) {
  struct stat facts{};
  pid_namespace_ = ::stat("/proc/self/ns/pid", &facts) == 0 ? facts.st_ino : 0;
  int pauses_left = 2000;  // of a millisecond
  while (!try_slot(index_)) {
    if (++index_ == clients_max && segment_.being_replaced() && pauses_left-- > 0) {
      static_cast<void>(::usleep(1000));
      index_ = 0;
    } else if (index_ == clients_max) {
      throw Error({.status = Status::busy,
                   .operation = "join segment",
                   .object = segment_.path(),
                   .detail = "all " + std::to_string(clients_max) + " slots are taken"});
    }
  }
  const ClientIdentity former = read_identity(segment_.shared(), index_);
  clear_board(segment_, index_, former);
  ClientIdentity last;
  std::memcpy(&last, &segment_.shared().identities.at(index_), sizeof(last));
  // Words that name a client of a segment that is gone shall mean nobody in this one.
  const auto begin = static_cast<std::uint32_t>(monotonic_ticks() % terms);
  term_ = (last.checksum == 0 && last.term == 0 ? begin : last.term + 1) % terms;
  term_ = std::max(term_, 1U);
  choose_leader(leader);
  write_identity(false);
}

// A slot that was handed over may have lost its lock to a program that closes all descriptors.
bool ClientSlot::try_slot(std::uint32_t client) {
  const std::int64_t offset = slots_lock_offset + client;
  if (!lock_byte(segment_.fd(), offset)) {
    if (errno != EAGAIN && errno != EACCES) {
      throw_io("lock slot of segment", segment_.path(), no_offset, errno);
    }
    return false;
  }
  const ClientIdentity former = read_identity(segment_.shared(), client);
  const bool goes_on = former.handed_over != 0 && process_lives(former).value_or(false);
  if (!goes_on && !has_living_follower(client, former.term)) {
    return true;
  }
  unlock_byte(segment_.fd(), offset);
  return false;
}

void ClientSlot::choose_leader(std::optional<Leader> leader) noexcept {
  leader_ = {.client = index_, .term = term_};
  if (!leader || leader->client == index_) {
    return;
  }
  const ClientIdentity identity = read_identity(segment_.shared(), leader->client);
  if (identity.checksum != 0 && identity.term == leader->term && group_lives(leader->client)) {
    leader_ = *leader;
  }
}

void ClientSlot::write_identity(bool handed_over) noexcept {
  ClientIdentity identity;
  identity.term = term_;
  identity.pid = static_cast<std::uint32_t>(::getpid());
  identity.start_time = own_.start_time;
  identity.pid_namespace = pid_namespace_;
  identity.leader = leader_.client;
  identity.leader_term = leader_.term;
  identity.handed_over = handed_over ? 1 : 0;
  identity.served_pid = served_pid_;
  identity.checksum = identity_checksum(identity);
  std::memcpy(&segment_.shared().identities[index_], &identity, sizeof(identity));
}

void ClientSlot::hand_over() {
  if (::fcntl(segment_.fd(), F_SETFD, 0) != 0) {
    throw_io("hand slot over", segment_.path(), no_offset, errno);
  }
  write_identity(true);
}

bool ClientSlot::leader_is_in_place() const noexcept {
  return !follows() || std::atomic_ref(segment_.shared().identities.at(leader_.client).term)
                               .load(std::memory_order_relaxed) == leader_.term;
}

bool ClientSlot::is_fellow(std::uint32_t client) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return identity.checksum != 0 && identity.leader == leader_.client &&
         identity.leader_term == leader_.term;
}

std::optional<std::uint32_t> ClientSlot::leader_of(std::uint32_t client) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return identity.checksum != 0 && identity.leader < clients_max ? std::optional(identity.leader)
                                                                 : std::nullopt;
}

// Nothing when /proc does not say: it is missing, or another container's.
std::optional<bool> ClientSlot::process_lives(const ClientIdentity& identity) const noexcept {
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

bool ClientSlot::lives(std::uint32_t client) const noexcept {
  const bool locked = byte_is_locked(segment_.fd(), slots_lock_offset + client);
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  if (identity.handed_over != 0) {
    return locked || process_lives(identity).value_or(false);
  }
  return locked && process_lives(identity).value_or(true);
}

bool ClientSlot::has_living_follower(std::uint32_t leader, std::uint32_t term) const noexcept {
  for (std::uint32_t client = 0; client < clients_max; ++client) {
    const ClientIdentity identity = read_identity(segment_.shared(), client);
    if (client != leader && identity.checksum != 0 && identity.leader == leader &&
        identity.leader_term == term && (client == index_ ? term_ != 0 : lives(client))) {
      return true;
    }
  }
  return false;
}

bool ClientSlot::group_lives(std::uint32_t client) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return lives(client) || (identity.checksum != 0 && has_living_follower(client, identity.term));
}

bool ClientSlot::lives_in_term(std::uint32_t client, std::uint32_t term) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return (identity.checksum == 0 || identity.term == term) && lives(client);
}

std::uint64_t ClientSlot::pid_of(std::uint32_t client) const noexcept {
  return read_identity(segment_.shared(), client).pid;
}

std::uint64_t ClientSlot::user_pid_of(std::uint32_t client) const noexcept {
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  return identity.served_pid != 0 ? identity.served_pid : identity.pid;
}

}  // namespace hippogriff::node
