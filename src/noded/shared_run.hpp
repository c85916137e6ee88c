// Commands of `hippogriff run` whose processes use what was reserved for all of them together.
#pragma once

#include "node/node.hpp"
#include "node/segment_lock.hpp"
#include "noded/guest.hpp"
#include "noded/run_token.hpp"

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace hippogriff::noded {

// One of a command's connections: what its end is seen by. Both stay open while it takes part.
struct RunMember {
  int socket = -1;
  int process = -1;  // -1: not seen from here
};

// The processes of one command, by connections of their own. What the first of them reserved, as
// `leader`, lasts as long as any of them. Thread-safe.
class SharedRun {
 public:
  // Throws Error as Node::leader and RunToken::draw do.
  SharedRun(uid_t uid, std::shared_ptr<node::Node> leader);
  ~SharedRun();
  SharedRun(const SharedRun&) = delete;
  SharedRun& operator=(const SharedRun&) = delete;

  [[nodiscard]] bool is_meant(const RunToken& token, uid_t uid) const noexcept {
    return token == token_ && uid == uid_;
  }

  [[nodiscard]] const RunToken& token() const noexcept { return token_; }

  // Whom a member's node follows.
  [[nodiscard]] const node::Leader& leader() const noexcept { return leader_words_; }

  void enter(RunMember member);
  // What it took must have been given back.
  void leave(int socket) noexcept;
  // How many have left so far.
  [[nodiscard]] std::uint64_t left_count();
  // Waits until the others whose process has ended have left, or its own has ended. False when
  // nobody has left since that count.
  bool await_the_dead(int socket, std::uint64_t seen_left_count, node::MonotonicTime deadline);
  // The leader has gone, and is kept for the others: its reservations are that user's (or null)
  // until the end of all this.
  void keep_leader(std::shared_ptr<Guest> guest, std::uint32_t reservations) noexcept;

  // Whether that is so: a client of that user which no session has.
  [[nodiscard]] bool keeps_leader_of(std::optional<uid_t> uid) const noexcept {
    return keeps_leader_ && uid.value_or(uid_) == uid_;
  }

 private:
  const RunToken token_;
  const uid_t uid_;
  std::shared_ptr<node::Node> node_;
  const node::Leader leader_words_;
  std::atomic<bool> keeps_leader_{false};
  std::mutex mutex_;  // guards all below
  std::condition_variable left_;
  std::vector<RunMember> members_;
  std::uint64_t left_count_ = 0;
  std::shared_ptr<Guest> guest_;
  std::uint32_t reservations_ = 0;
};

// All of a server's. Thread-safe.
class SharedRuns {
 public:
  std::shared_ptr<SharedRun> make(uid_t uid, std::shared_ptr<node::Node> leader);
  // Null when no command of that user is called so: whether another user's is, is not told.
  std::shared_ptr<SharedRun> find(std::string_view token, uid_t uid);
  // Leaders that are kept, of one user or of all.
  std::uint32_t kept_leaders(std::optional<uid_t> uid = std::nullopt);

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<SharedRun>> runs_;
};

}  // namespace hippogriff::noded
