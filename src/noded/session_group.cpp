// What a session does for processes that share one reservation: who may, and what they took.
#include "base/error.hpp"
#include "noded/session.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace hippogriff::noded {

namespace {

// So long what a dead process had is waited for: a session sees the end of its client at once, and
// gives up its waits within a look of the node's.
constexpr std::chrono::seconds leave_patience{2};

}  // namespace

void Session::carry_out_in_group(const RequestMessage& request,
                                 const std::function<bool()>& cancelled,
                                 Answer& answer) {
  const std::chrono::milliseconds timeout(request.timeout_ms);
  const std::string shared = request.operation == Operation::share ? share() : "";
  std::copy(shared.begin(), shared.end(), answer.reply.object.begin());
  switch (request.operation) {
    case Operation::take:
      answer.reply.value = take(request.device, request.size_bytes) ? 1 : 0;
      break;
    case Operation::give:
      give(request.device, request.size_bytes);
      break;
    case Operation::granted:
      answer.reply.value = node_->granted_bytes(request.device);
      break;
    case Operation::group_used:
      answer.reply.value = node_->group_used_bytes(request.device);
      break;
    case Operation::grow_group:
      node_->grow_group(request.device, request.size_bytes, timeout, cancelled);
      break;
    case Operation::defer:
      answer.reply.value = defer({.device = request.device,
                                  .size_bytes = request.size_bytes,
                                  .priority = request.priority});
      break;
    case Operation::deferred:
      answer.reply.value = node_->deferred_bytes(request.device);
      break;
    case Operation::claim:
      node_->claim_deferred(request.device, timeout, cancelled);
      break;
    default:
      break;  // the others are not of groups
  }
}

// Whether it follows. One that names nobody who lives, or another user's, is a client like others.
bool Session::join(std::string_view token) {
  std::shared_ptr<SharedRun> run = runs_->find(token, uid_);
  node::NodeOptions options = options_;
  if (run != nullptr) {
    options.leader = run->leader();
  }
  node_ = std::make_shared<node::Node>(std::move(options));
  if (run == nullptr || !node_->follows()) {
    return false;
  }
  run_ = std::move(run);
  run_->enter({.socket = socket_.get(), .process = process_.get()});
  return true;
}

// Of one that follows its leader's: then what it took is for those whom it starts.
std::string Session::share() {
  give_all();
  if (run_ == nullptr) {
    run_ = runs_->make(uid_, node_);
    leads_ = true;
    run_->enter({.socket = socket_.get(), .process = process_.get()});
  }
  return run_->token().text();
}

bool Session::take(std::uint32_t device, std::uint64_t size_bytes) {
  if (run_ == nullptr || leads_) {
    return false;
  }
  const auto deadline = std::chrono::steady_clock::now() + leave_patience;
  for (;;) {
    // Before: who leaves after the refusal may have left what was missing.
    const std::uint64_t left_count = run_->left_count();
    if (node_->take(device, size_bytes)) {
      break;
    }
    if (std::chrono::steady_clock::now() >= deadline ||
        !run_->await_the_dead(socket_.get(), left_count, deadline)) {
      return false;
    }
  }
  taken_[device] += size_bytes;
  return true;
}

// No more than it took: the rest is what its fellows have.
void Session::give(std::uint32_t device, std::uint64_t size_bytes) {
  const auto taken = taken_.find(device);
  if (taken != taken_.end()) {
    const std::uint64_t given = std::min(size_bytes, taken->second);
    node_->give(device, given);
    taken->second -= given;
  }
}

void Session::give_all() noexcept {
  for (const auto& [device, size_bytes] : taken_) {
    node_->give(device, size_bytes);
  }
  taken_.clear();
}

std::uint64_t Session::defer(const node::Request& request) {
  GuestReservation counted(guest_.get());
  const std::uint64_t handle = node_->defer(request);
  counted.keep();
  ++reservations_;
  return handle;
}

}  // namespace hippogriff::noded
