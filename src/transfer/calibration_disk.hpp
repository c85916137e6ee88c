// The calibration file on disk.
#pragma once

#include "transfer/calibration.hpp"

#include <filesystem>
#include <optional>

namespace hippogriff {

// Nothing when there is no file, or when it is another user's, broken or no calibration: then the
// first time in a process one line on standard error says why. Never waits, never throws.
[[nodiscard]] std::optional<CalibrationFile> load_calibration(const std::filesystem::path& file);

// Makes the folders (mode 0700) and puts a new file (mode 0600) in the place of the old one:
// readers and crashes see one or the other, never a part. Throws Error(io_error).
void save_calibration(const std::filesystem::path& file, const CalibrationFile& calibration);

}  // namespace hippogriff
