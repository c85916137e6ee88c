// The wait of a program that has no words for it: stderr, and NVML's news meanwhile.
#include "node/first_use.hpp"

#include "base/size.hpp"
#include "node/outside.hpp"

#include <cstdio>
#include <exception>
#include <utility>

namespace hippogriff::node {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds quiet_time{1};
constexpr std::chrono::milliseconds look_interval{200};

}  // namespace

FirstUse::FirstUse(Node* node,
                   Account& account,
                   std::uint32_t device,
                   std::string uuid,
                   std::chrono::milliseconds timeout)
    : node_(node), account_(&account), device_(device), uuid_(std::move(uuid)), timeout_(timeout) {}

// Others may end that take no part: nobody but those who wait asks NVML for them.
void FirstUse::look_around(Clock::time_point began, Clock::time_point& looked, bool& told) const {
  const Clock::time_point now = Clock::now();
  if (!told && now - began >= quiet_time) {
    told = true;
    std::fprintf(stderr,
                 "hippogriff: waiting for %s of %s (hippogriff ps shows who has it)\n",
                 format_size(account_->limit_bytes()).c_str(),
                 uuid_.c_str());
  }
  if (now - looked < look_interval) {
    return;
  }
  looked = now;
  try {
    look_outside(*node_, device_, uuid_);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): asked again
  }
}

bool FirstUse::claim() const noexcept {
  try {
    if (account_->is_claimed()) {
      return true;
    }
    const Clock::time_point began = Clock::now();
    Clock::time_point looked{};
    bool told = false;
    account_->claim(timeout_, [&] {
      look_around(began, looked, told);
      return false;
    });
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hippogriff: %s\n", error.what());
  }
  return false;
}

}  // namespace hippogriff::node
