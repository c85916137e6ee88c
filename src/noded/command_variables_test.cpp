// What the variables of a command may say, and that nothing else is taken.
#include "noded/command_variables.hpp"

#include "base/error.hpp"
#include "noded/run_token.hpp"

#include <gtest/gtest.h>

#include <string>

namespace hippogriff::noded {
namespace {

using std::chrono::milliseconds;

CommandVariables with(const std::string& name, const std::string& value) {
  return CommandVariables::read(
      [&](const char* asked) { return asked == name ? value : std::string(); });
}

void expect_refused(const std::string& name, const std::string& value) {
  try {
    with(name, value);
    FAIL() << name << "=" << value << " was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure().status, Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("'" + value + "'"), std::string::npos) << error.what();
  }
}

TEST(CommandVariables, timeouts_are_whole_milliseconds_or_as_long_as_it_takes) {
  EXPECT_EQ(with("HIPPOGRIFF_WAIT_MS", "0").claim_timeout, milliseconds(0));
  EXPECT_EQ(with("HIPPOGRIFF_WAIT_MS", "1500").claim_timeout, milliseconds(1500));
  const milliseconds longest = with("HIPPOGRIFF_WAIT_MS", "").claim_timeout;
  EXPECT_GT(longest, std::chrono::hours(24));
  EXPECT_EQ(with("HIPPOGRIFF_WAIT_MS", "9223372036854775807").claim_timeout, longest);
  EXPECT_EQ(with("HIPPOGRIFF_WAIT_MS", "99999999999999999999").claim_timeout, longest);
  for (const char* text : {"-1", "-0", "+1", "1.5", "1 ", "soon", "99999999999999999999s"}) {
    expect_refused("HIPPOGRIFF_WAIT_MS", text);
  }
}

TEST(CommandVariables, growth_is_on_or_off) {
  EXPECT_TRUE(with("HIPPOGRIFF_GROW", "1").grows);
  for (const char* text : {"", "0", "off"}) {
    EXPECT_FALSE(with("HIPPOGRIFF_GROW", text).grows) << text;
  }
  expect_refused("HIPPOGRIFF_GROW", "yes");
  expect_refused("HIPPOGRIFF_GROW", "2");
}

TEST(CommandVariables, reservations_are_named_by_words_of_a_segment_or_a_server) {
  const std::string token = RunToken::draw().text();
  EXPECT_EQ(with("HIPPOGRIFF_RESERVATION", token).reservation, token);
  EXPECT_EQ(with("HIPPOGRIFF_RESERVATION", "3:17").reservation, "3:17");
  EXPECT_EQ(with("HIPPOGRIFF_RESERVATION", "").reservation, "");
  expect_refused("HIPPOGRIFF_RESERVATION", "3");
  expect_refused("HIPPOGRIFF_RESERVATION", "mine");
}

}  // namespace
}  // namespace hippogriff::noded
