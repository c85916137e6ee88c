// Users and groups that no account of the machine needs to have, for tests that run as root.
#pragma once

#include <grp.h>
#include <sys/types.h>
#include <unistd.h>

namespace hippogriff::testing {

inline constexpr gid_t shared_group = 54'321;
inline constexpr gid_t other_group = 54'322;
inline constexpr uid_t somebody = 54'323;
inline constexpr uid_t somebody_else = 54'324;

// Only root can: for a child, which ends where it cannot. `member_of` is a supplementary group.
inline void become(uid_t user, gid_t member_of) {
  if (::setgroups(1, &member_of) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
    ::_exit(98);
  }
}

}  // namespace hippogriff::testing
