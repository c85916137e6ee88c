// Three variables, and what each may say.
#include "noded/command_variables.hpp"

#include "base/error.hpp"
#include "node/node.hpp"
#include "noded/run_token.hpp"

#include <charconv>
#include <cstdint>

namespace hippogriff::noded {

namespace {

// Longer than any program runs.
constexpr std::chrono::milliseconds longest_wait = std::chrono::hours(24 * 365);

[[noreturn]] void refuse(const char* name, const std::string& text, const char* why) {
  throw_invalid(std::string("read ") + name, "'" + text + "' " + why);
}

std::chrono::milliseconds read_timeout(const char* name, const std::string& text) {
  if (text.empty()) {
    return longest_wait;
  }
  std::uint64_t timeout_ms = 0;  // a sign is refused
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, timeout_ms);
  if (result.ec == std::errc::invalid_argument || result.ptr != end) {
    refuse(name, text, "is no whole number of milliseconds");
  }
  constexpr auto longest_ms = static_cast<std::uint64_t>(longest_wait.count());
  return result.ec == std::errc{} && timeout_ms < longest_ms ? std::chrono::milliseconds(timeout_ms)
                                                             : longest_wait;
}

bool read_switch(const char* name, const std::string& text) {
  if (text != "1" && text != "0" && text != "off" && !text.empty()) {
    refuse(name, text, "is neither 1 nor off");
  }
  return text == "1";
}

// Also those of another kind of node: a program may use another than its command does.
std::string read_words(const char* name, std::string text) {
  if (!text.empty() && !node::Leader::parse(text) && !RunToken::parse(text)) {
    refuse(
        name, text, "names nobody's: `hippogriff run` and hippogriff.hand_over() give the words");
  }
  return text;
}

}  // namespace

CommandVariables CommandVariables::read(const std::function<std::string(const char*)>& variable) {
  const auto take = [&](auto parse, const char* name) { return parse(name, variable(name)); };
  return {.reservation = take(read_words, "HIPPOGRIFF_RESERVATION"),
          .grows = take(read_switch, "HIPPOGRIFF_GROW"),
          .claim_timeout = take(read_timeout, "HIPPOGRIFF_WAIT_MS")};
}

}  // namespace hippogriff::noded
