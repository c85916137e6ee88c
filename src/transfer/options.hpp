// A caller's hippogriff_options, made safe to use.
#pragma once

#include <hippogriff/hippogriff.h>

namespace hippogriff {

// A copy of what is given, or the defaults for NULL. Throws Error(invalid_argument) for what this
// version does not know.
hippogriff_options checked_options(const hippogriff_options* given);

}  // namespace hippogriff
