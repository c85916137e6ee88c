// How Node changes the books: lock, read, repair, change, commit, unlock, wake.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"

#include <algorithm>

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

// `change` gets the books and the set of clients to wake, and says what the change means for the
// holdings. It throws nothing that leaves the holdings changed.
template <typename Change>
void Node::transact(Change change) {
  refuse_fork();
  const MonotonicTime deadline = std::chrono::steady_clock::now() + options_.lock_timeout;
  const std::scoped_lock turn(mutex_);
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
    if (mended_ || effects.changed) {
      commit(effects);
    }
    // Nobody of ours sleeps: a wake-up would be a system call for nothing.
    if (!somebody_waits) {
      granted.reset(attachment_->client());
    }
  }
  step(options_.steps, "before wakes");
  attachment_->wake(granted);
}

// Of who may wait for memory, and waits for the lock of the books as long.
template <typename Change>
void Node::transact_until(MonotonicTime deadline,
                          const std::function<bool()>& interrupted,
                          const char* operation,
                          const Change& change) {
  for (;;) {
    try {
      transact(change);
      return;
    } catch (const Error& error) {
      if (error.failure().operation != lock_operation ||
          std::chrono::steady_clock::now() >= deadline) {
        throw;
      }
      if (waits_cancelled_ || (interrupted && interrupted())) {
        throw Error({.status = Status::cancelled, .operation = operation, .object = path()});
      }
    }
  }
}

}  // namespace hippogriff::node
