// Where a server's socket is and whom it is for, as its address says it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace hippogriff::noded {

// "$XDG_RUNTIME_DIR/hippogriff.sock", or "/tmp/hippogriff-<uid>/node.sock" where that is not set.
std::string default_socket_path();

struct ServerPlace {
  std::string path;
  std::optional<gid_t> group;  // its members may use the server; none: its own user
  bool is_default = false;     // the path was not given

  // "" is the user's default path, "group:NAME" (or the group's number)
  // "/tmp/hippogriff-group-<gid>/node.sock", "group:NAME:/path" that path; all else is the path of
  // a user's socket. Throws Error(invalid_argument) for a group that this machine does not know.
  static ServerPlace parse(const std::string& address);

  [[nodiscard]] std::string folder() const;
};

}  // namespace hippogriff::noded
