// Folders, where a rename becomes durable.
#pragma once

#include "storage/descriptor.hpp"

#include <string>

namespace hippogriff {

// The folder part of a path: "." when there is none.
std::string folder_of(const std::string& path);

// A folder whose entries can be made durable. Open before they change: what may not be opened is
// known before anything has happened.
class Folder {
 public:
  // Throws Error(io_error).
  explicit Folder(std::string path);

  // Throws Error(io_error). File systems that cannot sync a folder do so by themselves or not at
  // all: EINVAL is no failure.
  void sync() const;

 private:
  std::string path_;
  Descriptor descriptor_;
};

// Gives an open file that has no name (O_TMPFILE) that one: false where there is a file of that
// name. Throws Error(io_error).
bool link_descriptor(int fd, const std::string& path);

}  // namespace hippogriff
