// Where a segment is and whose it is, as HIPPOGRIFF_NODE says it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace hippogriff::node {

// "group:NAME" (or the group's number) and "group:NAME:/path": how what a group shares is named.
struct GroupPlace {
  gid_t group = 0;
  std::string path;  // empty: none was given

  // Nothing where the address is not of that form. Throws Error(invalid_argument) for a group that
  // this machine does not know. `object` is what is named, for the error.
  static std::optional<GroupPlace> parse(const std::string& address, const std::string& object);
};

struct SegmentPlace {
  std::string path;
  std::optional<gid_t> group;  // its members share the segment (mode 0660); none: one user (0600)

  // "" is "/dev/shm/hippogriff-<uid>", "group:NAME" (or the group's number)
  // "/dev/shm/hippogriff-group-<gid>", "group:NAME:/path" that path; all else is the path of this
  // user's segment. Throws Error(invalid_argument) for a group that this machine does not know.
  static SegmentPlace parse(const std::string& address);
};

// Throws Error(unsupported) of opening the segment at `path`.
[[noreturn]] void refuse_segment(const std::string& path, std::string detail);

// Throws Error(unsupported) unless the open file is this user's alone, or the group's alone.
void refuse_foreign(int fd, const SegmentPlace& place);

}  // namespace hippogriff::node
