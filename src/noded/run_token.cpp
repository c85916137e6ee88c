// 128 bits, in hexadecimal.
#include "noded/run_token.hpp"

#include "base/error.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace hippogriff::noded {

namespace {

constexpr std::string_view digits = "0123456789abcdef";
constexpr std::size_t word_digits = run_token_digits / 2;

}  // namespace

RunToken RunToken::draw() {
  RunToken token;
  ssize_t drawn = -1;
  do {
    drawn = ::getrandom(token.words_.data(), sizeof(token.words_), 0);
  } while (drawn < 0 && errno == EINTR);
  if (drawn != static_cast<ssize_t>(sizeof(token.words_))) {
    throw_io("draw random numbers", {}, no_offset, errno);
  }
  return token;
}

std::optional<RunToken> RunToken::parse(std::string_view text) noexcept {
  RunToken token;
  if (text.size() != run_token_digits || text.find_first_not_of(digits) != std::string_view::npos) {
    return std::nullopt;
  }
  for (std::size_t index = 0; index < token.words_.size(); ++index) {
    const char* begin = text.data() + index * word_digits;
    std::from_chars(begin, begin + word_digits, token.words_.at(index), 16);
  }
  return token;
}

std::string RunToken::text() const {
  std::string text;
  for (const std::uint64_t word : words_) {
    for (unsigned shift = 64; shift != 0; shift -= 4) {
      text += digits[(word >> (shift - 4)) & 15U];
    }
  }
  return text;
}

}  // namespace hippogriff::noded
