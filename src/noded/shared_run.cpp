// Who takes part, and who has ended without a word.
#include "noded/shared_run.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

namespace hippogriff::noded {

namespace {

// So often one who waits looks whether its own process has ended.
constexpr std::chrono::milliseconds look_interval{50};

bool has_ended(const RunMember& member) noexcept {
  std::array<pollfd, 2> polled = {{{.fd = member.socket, .events = POLLRDHUP, .revents = 0},
                                   {.fd = member.process, .events = POLLIN, .revents = 0}}};
  return ::poll(polled.data(), polled.size(), 0) > 0;
}

}  // namespace

SharedRun::SharedRun(uid_t uid, std::shared_ptr<node::Node> leader)
    : token_(RunToken::draw()),
      uid_(uid),
      node_(std::move(leader)),
      leader_words_(node::Leader::parse(node_->leader()).value_or(node::Leader{})) {}

SharedRun::~SharedRun() {
  node_.reset();
  if (guest_ != nullptr) {
    guest_->give_reservations(reservations_);
  }
}

void SharedRun::enter(RunMember member) {
  const std::scoped_lock turn(mutex_);
  members_.push_back(member);
}

void SharedRun::leave(int socket) noexcept {
  const std::scoped_lock turn(mutex_);
  std::erase_if(members_, [&](const RunMember& member) { return member.socket == socket; });
  ++left_count_;
  left_.notify_all();
}

std::uint64_t SharedRun::left_count() {
  const std::scoped_lock turn(mutex_);
  return left_count_;
}

// Their sessions are about to see it as well, and then give back what they took.
bool SharedRun::await_the_dead(int socket,
                               std::uint64_t seen_left_count,
                               node::MonotonicTime deadline) {
  std::unique_lock lock(mutex_);
  std::vector<int> dead;
  for (const RunMember& member : members_) {
    if (member.socket != socket && has_ended(member)) {
      dead.push_back(member.socket);
    }
  }
  const auto some_stay = [&] {
    return std::ranges::any_of(members_, [&](const RunMember& member) {
      return std::ranges::find(dead, member.socket) != dead.end();
    });
  };
  // One that has died while it waits may be waited for by the others.
  const auto has_died = [&] {
    const auto ours = std::ranges::find(members_, socket, &RunMember::socket);
    return ours != members_.end() && has_ended(*ours);
  };
  while (some_stay() && !has_died() && std::chrono::steady_clock::now() < deadline) {
    left_.wait_until(lock, std::min(deadline, std::chrono::steady_clock::now() + look_interval));
  }
  return left_count_ != seen_left_count;
}

void SharedRun::keep_leader(std::shared_ptr<Guest> guest, std::uint32_t reservations) noexcept {
  keeps_leader_ = true;
  const std::scoped_lock turn(mutex_);
  guest_ = std::move(guest);
  reservations_ = reservations;
}

std::shared_ptr<SharedRun> SharedRuns::make(uid_t uid, std::shared_ptr<node::Node> leader) {
  auto made = std::make_shared<SharedRun>(uid, std::move(leader));
  const std::scoped_lock turn(mutex_);
  std::erase_if(runs_, [](const auto& run) { return run.expired(); });
  runs_.push_back(made);
  return made;
}

std::shared_ptr<SharedRun> SharedRuns::find(std::string_view token, uid_t uid) {
  const std::optional<RunToken> wanted = RunToken::parse(token);
  if (!wanted) {
    return nullptr;
  }
  const std::scoped_lock turn(mutex_);
  for (const std::weak_ptr<SharedRun>& known : runs_) {
    std::shared_ptr<SharedRun> run = known.lock();
    if (run != nullptr && run->is_meant(*wanted, uid)) {
      return run;
    }
  }
  return nullptr;
}

std::uint32_t SharedRuns::kept_leaders(std::optional<uid_t> uid) {
  const std::scoped_lock turn(mutex_);
  std::uint32_t count = 0;
  for (const std::weak_ptr<SharedRun>& known : runs_) {
    const std::shared_ptr<SharedRun> run = known.lock();
    count += run != nullptr && run->keeps_leader_of(uid) ? 1U : 0U;
  }
  return count;
}

}  // namespace hippogriff::noded
