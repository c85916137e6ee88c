// A thread that tells the books what an operation could not, because they were out of reach: what
// is released or given up would be kept for this process until its next operation, or its end.
#include "base/error.hpp"
#include "node/fork_page.hpp"
#include "node/transaction.hpp"

#include <chrono>
#include <csignal>
#include <system_error>

namespace hippogriff::node {

namespace {

constexpr std::chrono::milliseconds pause{100};

}  // namespace

// Under mutex_. Without memory for a thread the next operation does it.
void Node::settle_later() noexcept {
  seen_generation_ = 0;
  if (settles_ || ends_) {
    return;
  }
  if (settler_.joinable()) {
    settler_.join();  // it has said that it ends
  }
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    settler_ = std::thread([this] { settle(); });
    settles_ = true;
  } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): see above
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Node::settle() {
  for (;;) {
    {
      std::unique_lock turn(mutex_);
      settler_wakes_.wait_for(turn, pause, [this] { return ends_; });
      if (ends_ || seen_generation_ != 0) {
        settles_ = false;
        return;
      }
    }
    try {
      transact([](Books&, ClientSet&) { return Effects{}; });
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): once more after a pause
    }
  }
}

}  // namespace hippogriff::node
