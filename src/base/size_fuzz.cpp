// Any text either parses to a size that prints and parses back, or is refused as invalid argument.
#include "base/error.hpp"
#include "base/size.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  using hippogriff::Error, hippogriff::Status, hippogriff::parse_size, hippogriff::format_size;
  try {
    const std::uint64_t size =
        parse_size(std::string_view(reinterpret_cast<const char*>(data), size_bytes));
    const std::uint64_t back = parse_size(format_size(size));
    HIPPO_ASSERT(back <= size && size - back <= size / 100 + 1);
  } catch (const Error& error) {
    HIPPO_ASSERT(error.failure().status == Status::invalid_argument);
  }
  return 0;
}
