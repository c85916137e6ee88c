// The wait of a program that has no words for it: stderr, and NVML's news meanwhile.
#include "node/first_use.hpp"

#include "base/size.hpp"
#include "node/outside.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>

namespace hippogriff::node {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds quiet_time{1};
// Who waits for memory asks much more often.
constexpr std::chrono::seconds patience{1};

}  // namespace

FirstUse::FirstUse(Node* node,
                   Account& account,
                   std::uint32_t device,
                   std::string uuid,
                   std::chrono::milliseconds timeout)
    : node_(node), account_(&account), device_(device), uuid_(std::move(uuid)), timeout_(timeout) {}

void FirstUse::wait(std::chrono::milliseconds timeout,
                    const std::function<bool()>& interrupted) const {
  if (account_->is_claimed()) {
    return;
  }
  const Clock::time_point began = Clock::now();
  // Others may end that take no part: nobody but those who wait asks NVML for them.
  OutsideLook look_outside(*node_, device_, uuid_);
  bool told = false;
  try {
    account_->claim(std::min(timeout, timeout_), [&] {
      if (!told && Clock::now() - began >= quiet_time) {
        told = true;
        std::fprintf(stderr,
                     "hippogriff: waiting for %s of %s (hippogriff ps shows who has it)\n",
                     format_size(account_->limit_bytes()).c_str(),
                     uuid_.c_str());
      }
      look_outside();
      return interrupted && interrupted();
    });
  } catch (const Error& error) {
    Failure failure = error.failure();
    if (failure.status != Status::timed_out && failure.status != Status::busy) {
      throw;
    }
    failure.status = Status::out_of_device_memory;
    throw Error(std::move(failure));
  }
}

bool FirstUse::claim() const noexcept {
  try {
    wait(timeout_, nullptr);
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hippogriff: %s\n", error.what());
  }
  return false;
}

BackgroundClaim::~BackgroundClaim() {
  {
    const std::scoped_lock turn(mutex_);
    ends_ = true;
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

bool BackgroundClaim::is_there(Clock::time_point began) {
  if (first_use_.account().is_claimed()) {
    return true;
  }
  const std::scoped_lock turn(mutex_);
  asked_ = Clock::now();
  if (failed_ && failed_at_ >= began) {
    throw Error(*failed_);
  }
  if (!waits_ && try_now()) {
    return true;
  }
  if (!waits_) {
    if (thread_.joinable()) {
      thread_.join();  // it has ended but for its return
    }
    failed_.reset();
    thread_ = std::thread([this] { wait(); });
    waits_ = true;
  }
  return false;
}

bool BackgroundClaim::try_now() const {
  try {
    first_use_.wait(std::chrono::milliseconds(0), nullptr);
    return true;
  } catch (const Error&) {
    return false;  // the wait will say why
  }
}

void BackgroundClaim::wait() noexcept {
  std::optional<Error> failed;
  try {
    first_use_.wait(first_use_.timeout(), [this] {
      const std::scoped_lock turn(mutex_);
      return ends_ || Clock::now() - asked_ > patience;
    });
  } catch (const Error& error) {
    failed = error;
  }
  const std::scoped_lock turn(mutex_);
  waits_ = false;
  if (failed && failed->failure().status != Status::cancelled) {
    failed_ = std::move(failed);
    failed_at_ = Clock::now();
  }
}

}  // namespace hippogriff::node
