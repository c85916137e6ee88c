// Options may be of another version of the library: shorter, or longer than we know them.
#include "transfer/options.hpp"

#include "base/error.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace hippogriff {

// What another version has beyond ours must be zero.
hippogriff_options checked_options(const hippogriff_options* given) {
  hippogriff_options options = HIPPOGRIFF_OPTIONS_INIT;
  if (given == nullptr) {
    return options;
  }
  // A part of a pointer would be one to anywhere.
  const bool ends_a_field = given->struct_size % alignof(hippogriff_options) == 0 ||
                            given->struct_size == offsetof(hippogriff_options, flags);
  if (given->struct_size < sizeof(std::size_t) || given->struct_size > 4096 || !ends_a_field) {
    throw_invalid("read the options",
                  "struct_size is not sizeof(hippogriff_options); start from "
                  "HIPPOGRIFF_OPTIONS_INIT");
  }
  std::memcpy(&options, given, std::min(given->struct_size, sizeof options));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  const bool known = std::all_of(bytes + std::min(given->struct_size, sizeof options),
                                 bytes + given->struct_size,
                                 [](unsigned char byte) { return byte == 0; });
  constexpr std::uint32_t all_flags = HIPPOGRIFF_AFTER_STREAM | HIPPOGRIFF_BEFORE_STREAM |
                                      HIPPOGRIFF_HOST_MEMORY | HIPPOGRIFF_DURABLE |
                                      HIPPOGRIFF_FREE_SOURCE | HIPPOGRIFF_REPLACE;
  if (!known || (options.flags & ~all_flags) != 0) {
    throw_invalid("read the options", "they ask for something this version does not know");
  }
  std::uint32_t route = 0;  // what the caller wrote need not be a value of the enumeration
  static_assert(sizeof route == sizeof options.route);
  std::memcpy(&route, &options.route, sizeof route);
  if (route >= HIPPOGRIFF_ROUTE_COUNT) {
    throw_invalid("read the options", "there is no route " + std::to_string(route));
  }
  return options;
}

}  // namespace hippogriff
