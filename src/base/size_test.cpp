// Sizes as people write them.
#include "base/size.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>

#include <array>

namespace hippogriff {
namespace {

TEST(ParseSize, knows_every_unit) {
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("7B"), 7U);
  EXPECT_EQ(parse_size("2KB"), 2'000U);
  EXPECT_EQ(parse_size("2KiB"), 2'048U);
  EXPECT_EQ(parse_size("3MB"), 3'000'000U);
  EXPECT_EQ(parse_size("3MiB"), 3U << 20U);
  EXPECT_EQ(parse_size("5GB"), 5'000'000'000U);
  EXPECT_EQ(parse_size("8GiB"), std::uint64_t{8} << 30U);
  EXPECT_EQ(parse_size("1TB"), 1'000'000'000'000U);
  EXPECT_EQ(parse_size("1TiB"), std::uint64_t{1} << 40U);
}

TEST(ParseSize, takes_decimals_blanks_and_any_case) {
  EXPECT_EQ(parse_size("1.5KiB"), 1536U);
  EXPECT_EQ(parse_size("  0.25 gib\t"), 1U << 28U);
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("1.999B"), 1U);
  EXPECT_EQ(parse_size("0.1KiB"), 102U);
  EXPECT_EQ(parse_size("1.00000000000000000000000000000000000001KB"), 1000U);
}

TEST(ParseSize, takes_the_largest_number_and_refuses_one_more) {
  EXPECT_EQ(parse_size("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(parse_size("16777215.999TiB"), 18446742974197923840ULL + 1098412116148ULL);
  for (const char* text : {"18446744073709551616",
                           "16777216TiB",
                           "99999999999999999999999999999999999999999999B",
                           "18446744073709551615KiB"}) {
    EXPECT_THROW(static_cast<void>(parse_size(text)), Error) << text;
  }
}

TEST(ParseSize, refuses_rubbish_as_the_callers_mistake) {
  constexpr std::array rubbish = {"",
                                  " ",
                                  "GiB",
                                  "-1",
                                  "+1",
                                  "1.",
                                  ".5",
                                  "1..5",
                                  "1,5GiB",
                                  "1e3",
                                  "0x10",
                                  "8G",
                                  "8 Gi B",
                                  "8GiBs",
                                  "nan",
                                  "inf",
                                  "1 2",
                                  "1\n",
                                  "八GiB"};
  for (const char* text : rubbish) {
    try {
      static_cast<void>(parse_size(text));
      FAIL() << "accepted \"" << text << '"';
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::invalid_argument) << text;
    }
  }
}

TEST(FormatSize, prints_the_largest_unit_rounded_down) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1 KiB");
  EXPECT_EQ(format_size(1536), "1.5 KiB");
  EXPECT_EQ(format_size((std::uint64_t{1} << 30U) - 1), "1023.99 MiB");
  EXPECT_EQ(format_size((std::uint64_t{8} << 30U) + (std::uint64_t{8} << 30U) / 100), "8.07 GiB");
  EXPECT_EQ(format_size(UINT64_MAX), "16777215.99 TiB");
}

TEST(FormatSize, is_read_back_by_parse_size_within_a_hundredth) {
  std::uint64_t size = 1;
  for (int step = 0; step < 64; ++step, size = size * 2 + 1) {
    const std::uint64_t back = parse_size(format_size(size));
    EXPECT_LE(back, size);
    EXPECT_LE(size - back, size / 100 + 1) << size;
  }
}

}  // namespace
}  // namespace hippogriff
