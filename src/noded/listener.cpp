// Lock, look at what is there, bind, listen.
#include "noded/listener.hpp"

#include "base/error.hpp"
#include "noded/socket.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
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
void prepare_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw_io("make folder", folder, no_offset, errno);
  }
  struct stat facts{};
  if (::lstat(folder.c_str(), &facts) != 0) {
    throw_io("look at folder", folder, no_offset, errno);
  }
  if (!S_ISDIR(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 077U) != 0) {
    refuse(Status::unsupported, folder, "it must be a folder of this user alone, mode 0700");
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

Listener::Listener(std::string path) : path_(std::move(path)) {
  if (path_.empty()) {
    path_ = default_socket_path();
    prepare_folder(path_.substr(0, path_.find_last_of('/')));
  }
  static_cast<void>(address_of(path_));
  take_lock();
  remove_dead_socket();
  listen();
}

Listener::~Listener() {
  struct stat facts{};
  if (::lstat(path_.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode) && facts.st_ino == inode_) {
    static_cast<void>(::unlink(path_.c_str()));
  }
  // By themselves both would stay as long as a child that was forked meanwhile.
  static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
  static_cast<void>(::flock(lock_.get(), LOCK_UN));
}

void Listener::take_lock() {
  const std::string name = path_ + ".lock";
  lock_ = Descriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
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
    refuse(Status::busy, path_, "a server runs there already");
  }
}

// Another program's socket answers, whatever our lock says.
void Listener::remove_dead_socket() const {
  struct stat facts{};
  if (::lstat(path_.c_str(), &facts) != 0) {
    if (errno != ENOENT) {
      throw_io("look at socket", path_, no_offset, errno);
    }
    return;
  }
  if (!S_ISSOCK(facts.st_mode) || facts.st_uid != ::geteuid()) {
    refuse(Status::unsupported, path_, "what is there is not a socket of this user; it stays");
  }
  if (answers(path_)) {
    refuse(Status::busy, path_, "another program listens there");
  }
  if (::unlink(path_.c_str()) != 0) {
    throw_io("remove dead socket", path_, no_offset, errno);
  }
}

void Listener::listen() {
  const sockaddr_un address = address_of(path_);
  socket_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Linux gives the file the mode of the socket: there is no moment in which others may connect.
  if (!socket_.valid() || ::fchmod(socket_.get(), 0600) != 0) {
    throw_io("make socket", path_, no_offset, errno);
  }
  const auto* general = reinterpret_cast<const sockaddr*>(&address);
  struct stat facts{};
  if (::bind(socket_.get(), general, sizeof(address)) != 0 || ::lstat(path_.c_str(), &facts) != 0) {
    throw_io("bind socket", path_, no_offset, errno);
  }
  inode_ = facts.st_ino;
  if (::listen(socket_.get(), SOMAXCONN) != 0) {
    const int refused = errno;
    static_cast<void>(::unlink(path_.c_str()));
    throw_io("listen on socket", path_, no_offset, refused);
  }
}

}  // namespace hippogriff::noded
