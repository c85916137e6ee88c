// A caller's hippogriff_options, made safe to use.
#pragma once

#include <hippogriff/hippogriff.h>

namespace hippogriff {

// A copy of what is given, or the defaults for NULL. Throws Error(invalid_argument) for what this
// version does not know.
hippogriff_options checked_options(const hippogriff_options* given);

// Whether a transfer is to compute checksums of what it brings.
inline bool asks_for_checksums(const hippogriff_options& options) {
  return options.checksums != nullptr || options.checksum_count > 0;
}

}  // namespace hippogriff
