// Parses and prints sizes in whole numbers only, so that neither locale nor rounding plays a part.
#include "base/size.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace hippogriff {

namespace {

struct Unit {
  std::string_view name;
  std::uint64_t bytes;
};

constexpr std::array units = {
    Unit{"", 1},
    Unit{"b", 1},
    Unit{"kb", 1'000},
    Unit{"kib", std::uint64_t{1} << 10},
    Unit{"mb", 1'000'000},
    Unit{"mib", std::uint64_t{1} << 20},
    Unit{"gb", 1'000'000'000},
    Unit{"gib", std::uint64_t{1} << 30},
    Unit{"tb", 1'000'000'000'000},
    Unit{"tib", std::uint64_t{1} << 40},
};

// Digits after the point that count; 10^15 times a byte of the largest unit still fits 128 bits.
constexpr std::size_t fraction_digits_max = 15;

constexpr std::size_t quoted_bytes_max = 40;

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  std::string message = "\"";
  message += text.substr(0, quoted_bytes_max);
  message += text.size() > quoted_bytes_max ? "…\" " : "\" ";
  throw_invalid("parse size", message + why);
}

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}

bool is_blank(char character) {
  return character == ' ' || character == '\t';
}

char lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_blank(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::string_view take_digits(std::string_view& text) {
  std::size_t count = 0;
  while (count < text.size() && is_digit(text[count])) {
    ++count;
  }
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

std::uint64_t unit_bytes(std::string_view whole, std::string_view name) {
  const auto same = [name](const Unit& unit) {
    return std::equal(
        name.begin(), name.end(), unit.name.begin(), unit.name.end(), [](char given, char ours) {
          return lower(given) == ours;
        });
  };
  const auto* const found = std::find_if(units.begin(), units.end(), same);
  if (found == units.end()) {
    refuse(whole, "has a unit other than B, KB, KiB, MB, MiB, GB, GiB, TB, TiB");
  }
  return found->bytes;
}

using Wide = unsigned __int128;

}  // namespace

std::uint64_t parse_size(std::string_view text) {
  std::string_view rest = trim(text);
  const std::string_view integer = take_digits(rest);
  std::string_view fraction;
  if (!integer.empty() && !rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
    if (fraction.empty()) {
      refuse(text, "has no digit after its point");
    }
  }
  if (integer.empty()) {
    refuse(text, "is not a size such as 8GiB or 1.5MB");
  }
  const Wide unit = unit_bytes(text, trim(rest));

  Wide whole = 0;
  for (const char digit : integer) {
    whole = whole * 10 + static_cast<Wide>(digit - '0');
    if (whole > UINT64_MAX) {
      refuse(text, "is 2^64 bytes or more");
    }
  }
  Wide numerator = 0;
  Wide denominator = 1;
  for (const char digit : fraction.substr(0, fraction_digits_max)) {
    numerator = numerator * 10 + static_cast<Wide>(digit - '0');
    denominator *= 10;
  }
  const Wide bytes = whole * unit + numerator * unit / denominator;
  if (bytes > UINT64_MAX) {
    refuse(text, "is 2^64 bytes or more");
  }
  return static_cast<std::uint64_t>(bytes);
}

std::string format_size(std::uint64_t size_bytes) {
  constexpr std::array<std::string_view, 5> names = {" B", " KiB", " MiB", " GiB", " TiB"};
  std::size_t index = 0;
  std::uint64_t unit = 1;
  while (index + 1 < names.size() && size_bytes / unit >= 1024) {
    unit *= 1024;
    ++index;
  }
  std::string text = std::to_string(size_bytes / unit);
  const auto hundredths = static_cast<std::uint64_t>(Wide{size_bytes % unit} * 100 / unit);
  if (hundredths != 0) {
    text += '.';
    text += static_cast<char>('0' + hundredths / 10);
    if (hundredths % 10 != 0) {
      text += static_cast<char>('0' + hundredths % 10);
    }
  }
  return text.append(names.at(index));
}

}  // namespace hippogriff
