// Whether an array's files are read and written through the page cache or past it.
#pragma once

#include "array/backing.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace hippogriff::ondemand {

enum class IoKind : std::uint8_t {
  automatic,  // direct when what is not in the page cache is more than memory has room for
  cached,
  direct,  // where it can be: else cached, and the reason says why
};

struct IoWish {
  IoKind kind = IoKind::automatic;
  std::uint32_t line_bytes = 0;
  std::uint64_t available_bytes = 0;  // of memory, for the page cache too
};

// Throws Error(invalid_argument) unless the name is "auto", "cached" or "direct".
[[nodiscard]] IoKind io_kind_of(std::string_view name);

// Sets BackingFile::direct of each file, and Backing::is_direct and io_reason. The kernel goes on
// reading ahead in what goes through the page cache: told not to (POSIX_FADV_RANDOM) it reads
// scattered lines no faster, and lines in order four times slower and more.
void choose_io(Backing& backing, const IoWish& wish);

}  // namespace hippogriff::ondemand
