// Folders, where a rename becomes durable.
#pragma once

#include <string>

namespace hippogriff {

// The folder part of a path: "." when there is none.
std::string folder_of(const std::string& path);

// Makes the entries of a folder durable. Throws Error(io_error). File systems that cannot sync a
// folder do so by themselves or not at all: EINVAL is no failure.
void sync_folder(const std::string& folder);

// Gives an open file that has no name (O_TMPFILE) that one: false where there is a file of that
// name. Throws Error(io_error).
bool link_descriptor(int fd, const std::string& path);

}  // namespace hippogriff
