// Lines that were written and must not reach an array's own files (mode c): in a file without a
// name, each where it would be in the array.
#pragma once

#include "array/backing.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hippogriff::ondemand {

struct OverlayOptions {
  std::string array;                 // its name, for messages
  std::uint64_t size_bytes = 0;      // of the array
  std::uint32_t line_bytes = 0;      // a power of two
  std::vector<std::string> folders;  // the file is in the first one that takes it
};

// Grows to the array's size at most: a line that was written and left the cache takes its bytes of
// the folder's drive. Which lines these are takes a bit each, in memory that is touched as they
// come. Thread-safe. Gone when it is closed, and when the process ends.
class Overlay {
 public:
  // Throws Error(io_error), of the last folder, when none takes a file.
  Overlay(Storage& storage, const OverlayOptions& options);
  ~Overlay();
  Overlay(const Overlay&) = delete;
  Overlay& operator=(const Overlay&) = delete;

  // Named "changes of ARRAY in FOLDER".
  [[nodiscard]] const BackingFile& file() const { return file_; }

  [[nodiscard]] const std::string& folder() const { return folder_; }

  // The line that the range is a part of; nothing when it is of several.
  [[nodiscard]] std::optional<std::uint64_t> line_with(Range range) const;

  // Whether the range is all of its line.
  [[nodiscard]] bool is_line(Range range) const;

  // Whether the line was written. True only after note() of the same line.
  [[nodiscard]] bool has(std::uint64_t line) const;
  void note(std::uint64_t line);

 private:
  std::uint64_t size_bytes_;
  std::uint32_t line_bytes_;
  std::string folder_;
  BackingFile file_;
  std::span<std::uint64_t> written_;  // a bit a line
};

// Where changes go if nobody says it: $TMPDIR, else beside the files, else /var/tmp, else /tmp.
[[nodiscard]] std::vector<std::string> overlay_folders(const Backing& backing);

}  // namespace hippogriff::ondemand
