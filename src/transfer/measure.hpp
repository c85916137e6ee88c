// Measures what the router predicts from: the link, the drive, the page cache.
#pragma once

#include "transfer/runtime.hpp"

#include <functional>
#include <string>

namespace hippogriff {

// Told what is being measured and how far it is, 0 to 1; false cancels.
using MeasureProgress = std::function<bool(const char* step, double fraction)>;

// Takes about 10 s and a temporary file of up to 1 GiB in `directory`, removed at the end. Keeps
// the result in the runtime's calibration and returns it as JSON. Throws Error: cancelled,
// io_error, device_error.
std::string measure(Runtime& runtime,
                    const std::string& device,
                    const std::string& directory,
                    const MeasureProgress& progress);

}  // namespace hippogriff
