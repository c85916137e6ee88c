// Slots are taken by locking their bytes.
#include "node/client_slot.hpp"

#include "base/error.hpp"
#include "node/board.hpp"
#include "node/layout.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <span>

namespace hippogriff::node {

namespace {

// Of a millisecond each, for what others have for a moment.
constexpr int pauses_max = 2000;

struct flock byte_range(short type, std::int64_t offset) {
  struct flock range{};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  return range;
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

std::uint64_t identity_checksum(const ClientIdentity& identity) {
  return checksum_of(std::as_bytes(std::span(&identity, 1)).subspan(sizeof(identity.checksum)));
}

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

ClientSlot::ClientSlot(const Segment& segment,
                       std::optional<Leader> leader,
                       std::uint32_t served_pid,
                       std::optional<Leader> former_self)
    : segment_(segment), served_pid_(served_pid) {
  if (former_self && resume(*former_self)) {
    return;
  }
  int pauses_left = pauses_max;
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
  if (!viewer_.lives(former, client, false) && !has_living_follower(client, former.term)) {
    return true;
  }
  unlock_byte(segment_.fd(), offset);
  return false;
}

// The slot that this client had in a file that was removed, and that was carried over from there.
bool ClientSlot::resume(const Leader& former_self) {
  const std::uint32_t client = former_self.client;
  const ClientIdentity identity = read_identity(segment_.shared(), client);
  if (identity.origin_inode == 0 || identity.handed_over != 0 ||
      identity.term != former_self.term || identity.start_time == 0 ||
      identity.start_time != viewer_.own().start_time ||
      identity.pid != static_cast<std::uint32_t>(::getpid()) ||
      identity.pid_namespace != viewer_.pid_namespace()) {
    return false;
  }
  // Who looks for a free slot has its lock for a moment.
  int pauses_left = pauses_max;
  while (!lock_byte(segment_.fd(), slots_lock_offset + client)) {
    if ((errno != EAGAIN && errno != EACCES) || pauses_left-- == 0) {
      return false;
    }
    static_cast<void>(::usleep(1000));
  }
  index_ = client;
  term_ = identity.term;
  leader_ = {.client = identity.leader % clients_max, .term = identity.leader_term};
  resumed_ = true;
  write_identity(false);
  return true;
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
  identity.start_time = viewer_.own().start_time;
  identity.pid_namespace = viewer_.pid_namespace();
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

bool ClientSlot::lives(std::uint32_t client) const noexcept {
  const bool locked = byte_is_locked(segment_.fd(), slots_lock_offset + client);
  return viewer_.lives(read_identity(segment_.shared(), client), client, locked);
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

bool ClientSlot::pid_is_here(std::uint32_t client) const noexcept {
  return read_identity(segment_.shared(), client).pid_namespace == viewer_.pid_namespace();
}

}  // namespace hippogriff::node
