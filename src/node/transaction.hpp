// How Node changes the books: lock, read, repair, change, commit, unlock, wake.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

namespace hippogriff::node {

// The node's lock, which is had already, for a scope.
class LockedAttachment {
 public:
  explicit LockedAttachment(Attachment& attachment) : attachment_(attachment) {}

  ~LockedAttachment() { attachment_.unlock(); }

  LockedAttachment(const LockedAttachment&) = delete;
  LockedAttachment& operator=(const LockedAttachment&) = delete;

 private:
  Attachment& attachment_;
};

// Who may wait for longer asks so long at a time for the lock of the books, which others of the
// process wait for meanwhile, and leaves them so much in between.
inline constexpr std::chrono::milliseconds short_try{50};
inline constexpr std::chrono::milliseconds try_pause{10};

// `change` gets the books and the set of clients to wake, and says what the change means for the
// holdings. It throws nothing that leaves the holdings changed, and is called again where what it
// changed could not be committed.
template <typename Change>
void Node::transact(const Change& change) {
  transact_within(options_.lock_timeout, change);
}

// The same, with less patience for the lock of the books.
template <typename Change>
void Node::transact_within(std::chrono::milliseconds patience, const Change& change) {
  transact_within(std::chrono::steady_clock::now(), patience, change);
}

template <typename Change>
void Node::transact_within(MonotonicTime begin,
                           std::chrono::milliseconds patience,
                           const Change& change) {
  refuse_fork();
  const MonotonicTime deadline = begin + std::min(patience, options_.lock_timeout);
  const std::scoped_lock turn(mutex_);
  transact_in_turn(deadline, change);
}

// Under mutex_. Who was stopped for longer than its deadline has one more try. What was committed
// in vain may have counted: where it is not done again, it is put right later.
template <typename Change>
void Node::transact_in_turn(MonotonicTime deadline, const Change& change) {
  if (transact_once(deadline, change)) {
    return;
  }
  try {
    while (
        !transact_once(std::max(deadline, std::chrono::steady_clock::now() + short_try), change)) {
      if (std::chrono::steady_clock::now() >= deadline) {
        throw Error({.status = Status::busy,
                     .operation = std::string(lock_operation),
                     .object = path(),
                     .detail = "it was damaged, or taken away, again and again"});
      }
    }
  } catch (const Error&) {
    settle_later();
    throw;
  }
}

// False when the lock was lost before it was known that all was committed.
template <typename Change>
bool Node::transact_once(MonotonicTime deadline, const Change& change) {
  attach_and_lock(deadline);
  ClientSet granted;
  {
    const LockedAttachment locked(*attachment_);
    step(options_.steps, "locked");
    attachment_->read(books_);
    const bool somebody_waits =
        std::ranges::any_of(holdings_, [](const Holding& held) { return held.record.waits(); });
    mended_ = !consistent();
    if (mended_) {
      reconcile(granted);
    } else {
      remember();
    }
    const Effects effects = change(books_, granted);
    if ((mended_ || effects.changed) && !commit(effects)) {
      return false;
    }
    // Nobody of ours sleeps: a wake-up would be a system call for nothing.
    if (!somebody_waits) {
      granted.reset(attachment_->client());
    }
  }
  step(options_.steps, "before wakes");
  attachment_->wake(granted);
  return true;
}

// Of who may wait for memory, and waits for the lock of the books as long; others of the process
// get in meanwhile.
template <typename Change>
void Node::transact_until(MonotonicTime begin,
                          MonotonicTime deadline,
                          const std::function<bool()>& interrupted,
                          const char* operation,
                          const Change& change) {
  const MonotonicTime last = std::max(deadline, begin + options_.lock_timeout);
  for (;;) {
    try {
      transact_within(begin, short_try, change);
      return;
    } catch (const Error& error) {
      if (error.failure().operation != lock_operation || std::chrono::steady_clock::now() >= last) {
        throw;
      }
      if (waits_cancelled_ || (interrupted && interrupted())) {
        throw Error({.status = Status::cancelled, .operation = operation, .object = path()});
      }
    }
    std::this_thread::sleep_for(try_pause);
    begin = std::chrono::steady_clock::now();
  }
}

}  // namespace hippogriff::node
