// Sizes as people write them: "6GiB", "1.5 MB", "4096".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hippogriff {

// Bytes of a size such as "8GiB" or "1.5 MB": a decimal number without sign or exponent, then B,
// KB, KiB, MB, MiB, GB, GiB, TB, TiB in any case, or nothing for bytes; blanks around both are
// fine. Rounds down to whole bytes. Throws Error(invalid_argument) for all else and for 2^64 and
// more.
std::uint64_t parse_size(std::string_view text);

// The largest binary unit with up to two decimals, rounded down: "1.5 GiB", "1023 B".
std::string format_size(std::uint64_t size_bytes);

}  // namespace hippogriff
