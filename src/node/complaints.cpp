// Of each kind a count, and the time of its last line.
#include "node/complaints.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <string_view>
#include <utility>

namespace hippogriff::node {

namespace {

bool is_part_of_number(char letter) noexcept {
  return std::isdigit(static_cast<unsigned char>(letter)) != 0 || letter == '.';
}

// A checksum of the words but for numbers and what they count ("1.50 GiB"), which are others each
// time.
std::uint64_t kind_of(std::string_view text) noexcept {
  std::uint64_t sum = 1;
  bool after_number = false;
  while (!text.empty()) {
    const std::size_t blank = text.find(' ');
    const std::string_view word = text.substr(0, blank);
    text.remove_prefix(blank == std::string_view::npos ? text.size() : blank + 1);
    const bool is_number = !word.empty() && std::ranges::all_of(word, is_part_of_number);
    if (!is_number && !after_number) {
      for (const char letter : word) {
        sum = (sum ^ static_cast<unsigned char>(letter)) * 0x100'0000'01b3U;
      }
    }
    after_number = is_number;
  }
  return sum;
}

}  // namespace

// One that is known, or the one that was said the longest ago, for a new one.
Complaints::Kind& Complaints::find(std::uint64_t of_text) noexcept {
  auto* at = std::ranges::find(kinds_, of_text, &Kind::of_text);
  if (at == kinds_.end()) {
    at = std::ranges::min_element(kinds_, {}, &Kind::last);
    *at = {.of_text = of_text};
  }
  return *at;
}

std::optional<std::uint64_t> Complaints::count(const char* why, Clock::time_point now) noexcept {
  const std::scoped_lock turn(mutex_);
  Kind& kind = find(kind_of(why));
  if (kind.said >= first_max && now - kind.last < interval) {
    ++kind.left_out;
    return std::nullopt;
  }
  ++kind.said;
  kind.last = now;
  return std::exchange(kind.left_out, 0);
}

void Complaints::say(const char* why) noexcept {
  const std::optional<std::uint64_t> left_out = count(why, Clock::now());
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
