// Addresses to paths.
#include "noded/server_place.hpp"

#include "node/segment_place.hpp"

#include <unistd.h>

#include <cstdlib>

namespace hippogriff::noded {

std::string default_socket_path() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): read as everywhere; nobody here changes it
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  if (folder != nullptr && folder[0] == '/') {
    return std::string(folder) + "/hippogriff.sock";
  }
  return "/tmp/hippogriff-" + std::to_string(::geteuid()) + "/node.sock";
}

ServerPlace ServerPlace::parse(const std::string& address) {
  if (address.empty()) {
    return {.path = default_socket_path(), .group = {}, .is_default = true};
  }
  const auto of_group = node::GroupPlace::parse(address, "the server");
  if (!of_group) {
    return {.path = address, .group = {}};
  }
  if (of_group->path.empty()) {
    return {.path = "/tmp/hippogriff-group-" + std::to_string(of_group->group) + "/node.sock",
            .group = of_group->group,
            .is_default = true};
  }
  return {.path = of_group->path, .group = of_group->group};
}

std::string ServerPlace::folder() const {
  const std::size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace hippogriff::noded
