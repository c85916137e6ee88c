// Lock, look at what is there, bind, listen.
#include "noded/listener.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "noded/socket.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <utility>

namespace hippogriff::noded {

namespace {

[[noreturn]] void refuse(Status status, const std::string& path, std::string detail) {
  throw Error({.status = status,
               .operation = "listen on socket",
               .object = path,
               .detail = std::move(detail)});
}

// Under /tmp anybody may have made it before us.
void prepare_folder(const std::string& folder, std::optional<gid_t> group) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw_io("make folder", folder, no_offset, errno);
  }
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0) {
    throw_io("look at folder", folder, no_offset, errno);
  }
  const mode_t nobodys = group ? 027U : 077U;
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & nobodys) != 0) {
    refuse(Status::unsupported,
           folder,
           group ? "it must be a folder of this user, mode 0750 at most"
                 : "it must be a folder of this user alone, mode 0700");
  }
  if (group && (::lchown(folder.c_str(), static_cast<uid_t>(-1), *group) != 0 ||
                ::chmod(folder.c_str(), 0750) != 0)) {
    throw_io("give folder to group " + std::to_string(*group), folder, no_offset, errno);
  }
}

// Who may write there could put a socket of his own in the place of ours.
void check_folder(const std::string& folder) {
  struct stat facts{};
  if (::stat(folder.c_str(), &facts) != 0) {
    throw_io("look at folder", folder, no_offset, errno);
  }
  const bool others_write = (facts.st_mode & 022U) != 0 && (facts.st_mode & S_ISVTX) == 0;
  if ((facts.st_uid != ::geteuid() && facts.st_uid != 0) || others_write) {
    refuse(Status::unsupported,
           folder,
           "a group's socket needs a folder of this user or root, in which others may not replace "
           "it (mode 0750, or with the sticky bit)");
  }
}

bool answers(const std::string& path) {
  try {
    static_cast<void>(connect_to(path, std::chrono::steady_clock::now() + std::chrono::seconds(1)));
  } catch (const Error& error) {
    return error.failure().errno_value != ECONNREFUSED;
  }
  return true;
}

}  // namespace

Listener::Listener(ServerPlace place) : place_(std::move(place)) {
  static_cast<void>(address_of(path()));
  static_cast<void>(find_own_socket());
  if (place_.is_default) {
    prepare_folder(place_.folder(), place_.group);
  } else if (place_.group) {
    check_folder(place_.folder());
  }
  take_lock();
  remove_dead_socket();
  listen();
}

Listener::~Listener() {
  struct stat facts{};
  if (::lstat(path().c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode) && facts.st_ino == inode_) {
    static_cast<void>(::unlink(path().c_str()));
  }
  // By themselves both would stay as long as a child that was forked meanwhile.
  static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
  static_cast<void>(::flock(lock_.get(), LOCK_UN));
}

void Listener::take_lock() {
  const std::string name = path() + ".lock";
  lock_ = Descriptor(
      own_descriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)));
  struct stat facts{};
  if (!lock_.valid() || ::fstat(lock_.get(), &facts) != 0) {
    throw_io("open lock", name, no_offset, errno);
  }
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) {
    refuse(Status::unsupported, name, "it must be a file of this user");
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) {
      throw_io("lock", name, no_offset, errno);
    }
    refuse(Status::busy, path(), "a server runs there already");
  }
}

// False where there is nothing. What is there and no socket of this user's is refused, before there
// is a lock beside it.
bool Listener::find_own_socket() const {
  struct stat facts{};
  if (::lstat(path().c_str(), &facts) != 0) {
    if (errno != ENOENT) {
      throw_io("look at socket", path(), no_offset, errno);
    }
    return false;
  }
  if (!S_ISSOCK(facts.st_mode) || facts.st_uid != ::geteuid()) {
    refuse(Status::unsupported, path(), "what is there is not a socket of this user; it stays");
  }
  return true;
}

// Another program's socket answers, whatever our lock says.
void Listener::remove_dead_socket() const {
  if (!find_own_socket()) {
    return;
  }
  if (answers(path())) {
    refuse(Status::busy, path(), "another program listens there");
  }
  if (::unlink(path().c_str()) != 0) {
    throw_io("remove dead socket", path(), no_offset, errno);
  }
}

// By what was opened and not by its name: nobody else's file is given away, whatever is there now.
void Listener::share_with_group() const {
  if (!place_.group) {
    return;
  }
  const Descriptor file(::open(path().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat facts{};
  if (!file.valid() || ::fstat(file.get(), &facts) != 0) {
    throw_io("open socket", path(), no_offset, errno);
  }
  if (!S_ISSOCK(facts.st_mode) || facts.st_ino != inode_) {
    refuse(Status::unsupported, path(), "somebody has replaced it");
  }
  const std::string name = "/proc/self/fd/" + std::to_string(file.get());
  if (::fchownat(file.get(), "", static_cast<uid_t>(-1), *place_.group, AT_EMPTY_PATH) != 0 ||
      ::chmod(name.c_str(), 0660) != 0) {
    throw_io("give socket to group " + std::to_string(*place_.group) + " (is this user in it?)",
             path(),
             no_offset,
             errno);
  }
}

void Listener::listen() {
  const sockaddr_un address = address_of(path());
  socket_ =
      Descriptor(own_descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  // Linux gives the file the mode of the socket: there is no moment in which others may connect.
  if (!socket_.valid() || ::fchmod(socket_.get(), 0600) != 0) {
    throw_io("make socket", path(), no_offset, errno);
  }
  const auto* general = reinterpret_cast<const sockaddr*>(&address);
  struct stat facts{};
  if (::bind(socket_.get(), general, sizeof(address)) != 0 ||
      ::lstat(path().c_str(), &facts) != 0) {
    throw_io("bind socket", path(), no_offset, errno);
  }
  inode_ = facts.st_ino;
  try {
    share_with_group();
    if (::listen(socket_.get(), SOMAXCONN) != 0) {
      throw_io("listen on socket", path(), no_offset, errno);
    }
  } catch (...) {
    static_cast<void>(::unlink(path().c_str()));
    throw;
  }
}

}  // namespace hippogriff::noded
