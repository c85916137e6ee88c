// A thread that tells the books what an operation could not, because they were out of reach: what
// is released or given up would be kept for this process until its next operation, or its end.
#include "base/error.hpp"
#include "base/quiet_thread.hpp"
#include "node/fork_page.hpp"
#include "node/transaction.hpp"

#include <chrono>
#include <exception>
#include <memory>

namespace hippogriff::node {

namespace {

constexpr std::chrono::milliseconds pause{100};

}  // namespace

// Under mutex_. Without memory for a thread the next operation does it.
void Node::settle_later() noexcept {
  seen_generation_ = 0;
  if (settler_ != nullptr && (settler_->runs || settler_->ends)) {
    return;
  }
  try {
    if (settler_ == nullptr) {
      settler_ = std::make_unique<Settler>();
    } else if (settler_->thread.joinable()) {
      settler_->thread.join();  // it has said that it ends
    }
    settler_->thread = quiet_thread("hippo-settler", [this] { settle(); });
    settler_->runs = true;
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): see above
  }
}

// Under mutex_.
bool Node::settles() const noexcept {
  return settler_ != nullptr && settler_->runs && seen_generation_ == 0;
}

void Node::settle() {
  for (;;) {
    {
      std::unique_lock turn(mutex_);
      settler_->wakes.wait_for(turn, pause, [this] { return settler_->ends; });
      if (settler_->ends || seen_generation_ != 0) {
        settler_->runs = false;
        return;
      }
    }
    try {
      transact_within(short_try, [](Books&, ClientSet&) { return Effects{}; });
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): once more after a pause
    }
  }
}

void Node::end_settler() noexcept {
  if (settler_ == nullptr) {
    return;
  }
  if (fork_page_->wiped()) {
    // The parent's: there is no thread here, and to destroy what one waits on would wait for it.
    [[maybe_unused]] const Settler* const left = settler_.release();
    return;
  }
  {
    const std::scoped_lock turn(mutex_);
    settler_->ends = true;
  }
  settler_->wakes.notify_all();
  if (settler_->thread.joinable()) {
    settler_->thread.join();
  }
}

}  // namespace hippogriff::node
