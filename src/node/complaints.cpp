// A count, and the time of the last line.
#include "node/complaints.hpp"

#include <cstdio>
#include <utility>

namespace hippogriff::node {

std::optional<std::uint64_t> Complaints::count(Clock::time_point now) noexcept {
  const std::scoped_lock turn(mutex_);
  if (said_ >= first_max && now - last_ < interval) {
    ++left_out_;
    return std::nullopt;
  }
  ++said_;
  last_ = now;
  return std::exchange(left_out_, 0);
}

void Complaints::say(const char* why) noexcept {
  const std::optional<std::uint64_t> left_out = count(Clock::now());
  if (left_out == 0) {
    std::fprintf(stderr, "hippogriff: %s\n", why);
  } else if (left_out) {
    std::fprintf(stderr,
                 "hippogriff: %s (and %llu such failures before it)\n",
                 why,
                 static_cast<unsigned long long>(*left_out));
  }
}

}  // namespace hippogriff::node
