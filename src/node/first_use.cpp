// The wait of a program that has no words for it: stderr, and NVML's news meanwhile.
#include "node/first_use.hpp"

#include "base/size.hpp"
#include "node/outside.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

namespace hippogriff::node {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds quiet_time{1};

}  // namespace

FirstUse::FirstUse(NodeClient& node,
                   Account& account,
                   std::uint32_t device,
                   std::string uuid,
                   std::chrono::milliseconds timeout)
    : node_(&node),
      account_(&account),
      device_(device),
      uuid_(std::move(uuid)),
      timeout_(timeout) {}

void FirstUse::wait(std::chrono::milliseconds timeout,
                    const std::function<bool()>& interrupted) const {
  if (account_->is_claimed()) {
    return;
  }
  const Clock::time_point began = Clock::now();
  // Others may end that take no part: nobody but those who wait asks NVML for them.
  OutsideLook look_outside(*node_, device_, uuid_);
  look_outside();  // A server grants at once what there is, by what it knows.
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

bool FirstUse::claim(Complaints& complaints) const noexcept {
  try {
    wait(timeout_, nullptr);
    return true;
  } catch (const std::exception& error) {
    complaints.say(error.what());
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

BackgroundClaim::Wish::Wish(BackgroundClaim& claim) : claim_(claim), round_(claim.begin_wish()) {}

BackgroundClaim::Wish::~Wish() {
  claim_.end_wish();
}

std::uint64_t BackgroundClaim::begin_wish() {
  const std::scoped_lock turn(mutex_);
  begin_wait_locked();
  ++wishes_;
  return round_;
}

void BackgroundClaim::end_wish() noexcept {
  const std::scoped_lock turn(mutex_);
  --wishes_;
}

bool BackgroundClaim::is_there_now() {
  if (const std::scoped_lock turn(mutex_); waits_) {
    return first_use_.account().is_claimed();
  }
  try {
    first_use_.wait(std::chrono::milliseconds(0), nullptr);
    return true;
  } catch (const Error&) {
    return false;  // a wait will say why
  }
}

bool BackgroundClaim::is_there(std::uint64_t round) {
  if (first_use_.account().is_claimed()) {
    return true;
  }
  const std::scoped_lock turn(mutex_);
  if (round < round_) {
    throw Error(*failed_);
  }
  begin_wait_locked();  // it may have been there, and released
  return false;
}

void BackgroundClaim::begin_wait_locked() {
  if (waits_ || first_use_.account().is_claimed()) {
    return;
  }
  if (thread_.joinable()) {
    thread_.join();  // it has ended but for its return
  }
  try {
    thread_ = std::thread([this] { wait(); });
  } catch (const std::system_error& error) {
    throw Error({.status = Status::out_of_host_memory,
                 .operation = "start a thread",
                 .object = "wait for what this command reserved",
                 .errno_value = error.code().value()});
  }
  waits_ = true;
}

void BackgroundClaim::wait() noexcept {
  while (!wait_once()) {
  }
}

// False where it was given up for want of wishes, and there is one again.
bool BackgroundClaim::wait_once() noexcept {
  bool given_up = false;
  std::optional<Failure> failed;
  try {
    first_use_.wait(first_use_.timeout(), [&] {
      const std::scoped_lock turn(mutex_);
      given_up = ends_ || wishes_ == 0;
      return given_up;
    });
  } catch (...) {
    failed = current_failure();
  }
  const std::scoped_lock turn(mutex_);
  if (failed && given_up && !ends_ && wishes_ != 0) {
    return false;
  }
  waits_ = false;
  if (failed && !given_up) {
    failed_ = std::move(failed);
    ++round_;
  }
  return true;
}

}  // namespace hippogriff::node
