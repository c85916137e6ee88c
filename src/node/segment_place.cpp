// Names of groups to numbers.
#include "node/segment_place.hpp"

#include "base/error.hpp"

#include <grp.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr std::string_view group_scheme = "group:";

gid_t group_of(const std::string& name, const std::string& address) {
  gid_t number = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), number);
  if (parsed.ec == std::errc{} && parsed.ptr == name.data() + name.size()) {
    return number;
  }
  std::vector<char> memory(4096);
  group entry{};
  group* found = nullptr;
  int refused = 0;
  while ((refused = ::getgrnam_r(name.c_str(), &entry, memory.data(), memory.size(), &found)) ==
             ERANGE &&
         memory.size() < (std::size_t{1} << 24)) {  // groups may have very many members
    memory.resize(memory.size() * 2);
  }
  if (found == nullptr) {
    throw_invalid("find the segment " + address,
                  refused != 0 ? "group " + name + ": " + std::generic_category().message(refused)
                               : "there is no group '" + name + "'");
  }
  return found->gr_gid;
}

}  // namespace

SegmentPlace SegmentPlace::parse(const std::string& address) {
  if (address.empty()) {
    return {.path = "/dev/shm/hippogriff-" + std::to_string(::geteuid()), .group = {}};
  }
  if (!address.starts_with(group_scheme)) {
    return {.path = address, .group = {}};
  }
  const std::string rest = address.substr(group_scheme.size());
  const std::size_t colon = rest.find(':');
  const gid_t group = group_of(rest.substr(0, colon), address);
  if (colon == std::string::npos) {
    return {.path = "/dev/shm/hippogriff-group-" + std::to_string(group), .group = group};
  }
  if (colon + 1 == rest.size()) {
    throw_invalid("find the segment " + address, "no path follows the second colon");
  }
  return {.path = rest.substr(colon + 1), .group = group};
}

}  // namespace hippogriff::node
