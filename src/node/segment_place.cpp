// Names of groups to numbers.
#include "node/segment_place.hpp"

#include "base/error.hpp"

#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

constexpr std::string_view group_scheme = "group:";

gid_t group_of(const std::string& name, const std::string& what) {
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
    throw_invalid("find " + what,
                  refused != 0 ? "group " + name + ": " + std::generic_category().message(refused)
                               : "there is no group '" + name + "'");
  }
  return found->gr_gid;
}

}  // namespace

void refuse_segment(const std::string& path, std::string detail) {
  throw Error({.status = Status::unsupported,
               .operation = "open segment",
               .object = path,
               .detail = std::move(detail)});
}

std::optional<GroupPlace> GroupPlace::parse(const std::string& address, const std::string& object) {
  if (!address.starts_with(group_scheme)) {
    return std::nullopt;
  }
  const std::string what = object + " " + address;
  const std::string rest = address.substr(group_scheme.size());
  const std::size_t colon = rest.find(':');
  GroupPlace place{.group = group_of(rest.substr(0, colon), what), .path = {}};
  if (colon != std::string::npos) {
    place.path = rest.substr(colon + 1);
    if (place.path.empty()) {
      throw_invalid("find " + what, "no path follows the second colon");
    }
  }
  return place;
}

SegmentPlace SegmentPlace::parse(const std::string& address) {
  if (address.empty()) {
    return {.path = "/dev/shm/hippogriff-" + std::to_string(::geteuid()), .group = {}};
  }
  const std::optional<GroupPlace> of_group = GroupPlace::parse(address, "the segment");
  if (!of_group) {
    return {.path = address, .group = {}};
  }
  if (of_group->path.empty()) {
    return {.path = "/dev/shm/hippogriff-group-" + std::to_string(of_group->group),
            .group = of_group->group};
  }
  return {.path = of_group->path, .group = of_group->group};
}

void refuse_foreign(int fd, const SegmentPlace& place) {
  struct stat facts{};
  if (::fstat(fd, &facts) != 0) {
    throw_io("open segment", place.path, no_offset, errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    refuse_segment(place.path, "it is not a regular file");
  }
  if (place.group) {
    if (facts.st_gid != *place.group) {
      refuse_segment(place.path,
                     "it belongs to group " + std::to_string(facts.st_gid) + ", not " +
                         std::to_string(*place.group));
    }
    if ((facts.st_mode & 07U) != 0) {
      refuse_segment(place.path, "users outside the group may open it; its mode must be 0660");
    }
    return;
  }
  if (facts.st_uid != ::geteuid()) {
    refuse_segment(place.path, "it belongs to user " + std::to_string(facts.st_uid));
  }
  if ((facts.st_mode & 077U) != 0) {
    refuse_segment(place.path,
                   "other users may open it; its mode must be 0600 (a group's: say group:NAME)");
  }
}

}  // namespace hippogriff::node
