// System calls behind both ends of a connection.
#include "noded/socket.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>
#include <vector>

namespace hippogriff::noded {

namespace {

// SO_PEERPIDFD of Linux 6.5, which older headers do not have.
constexpr int peer_pidfd = 77;

// For poll, rounded up; long waits in parts.
int milliseconds_until(MonotonicTime deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::chrono::milliseconds::rep>(left.count(), 0, INT_MAX));
}

// 0 when the socket is ready.
int wait_for(int socket, short events, MonotonicTime deadline, int process) {
  for (;;) {
    std::array<pollfd, 2> polled = {{{.fd = socket, .events = events, .revents = 0},
                                     {.fd = process, .events = POLLIN, .revents = 0}}};
    const int timeout_ms = milliseconds_until(deadline);
    const int ready = ::poll(polled.data(), polled.size(), timeout_ms);
    if (ready > 0) {
      return polled[1].revents != 0 ? EOWNERDEAD : 0;
    }
    if (ready < 0 && errno != EINTR) {
      return errno;
    }
    if (ready == 0 && timeout_ms < INT_MAX) {
      return ETIMEDOUT;
    }
  }
}

bool is_passing(int errno_value) {
  return errno_value == EAGAIN || errno_value == EINTR;
}

}  // namespace

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  if (path.empty()) {
    throw_invalid("use socket", "its path is empty");
  }
  if (path.size() >= sizeof(address.sun_path)) {
    throw_invalid("use socket",
                  "its path has " + std::to_string(path.size()) + " bytes, and " +
                      std::to_string(sizeof(address.sun_path) - 1) + " are the most: \"" + path +
                      "\"");
  }
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  return address;
}

Descriptor connect_to(const std::string& path, MonotonicTime deadline) {
  const sockaddr_un address = address_of(path);
  Descriptor socket(
      own_descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
  if (!socket.valid()) {
    throw_io("make socket", path, no_offset, errno);
  }
  const auto* general = reinterpret_cast<const sockaddr*>(&address);
  while (::connect(socket.get(), general, sizeof(address)) != 0) {
    const int refused = errno;
    if (!is_passing(refused) || std::chrono::steady_clock::now() >= deadline) {
      const bool absent = refused == ENOENT || refused == ECONNREFUSED;
      throw Error({.status = Status::io_error,
                   .operation = "connect to node server",
                   .object = path,
                   .errno_value = refused,
                   .detail = absent ? "no server listens there: start `hippogriff noded`" : ""});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return socket;
}

Peer peer_of(int socket) {
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    throw_io("ask for credentials of socket", {}, no_offset, errno);
  }
  return {.pid = credentials.pid, .uid = credentials.uid, .gid = credentials.gid};
}

bool trusted(uid_t uid) noexcept {
  return uid == 0 || uid == ::geteuid();
}

bool is_member(int socket, const Peer& peer, gid_t group) {
  if (peer.gid == group) {
    return true;
  }
  std::vector<gid_t> groups(64);
  auto size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
    if (errno != ERANGE) {
      throw_io("ask for groups of socket", {}, no_offset, errno);
    }
    // They are as they were when the connection was made: the size that was just told fits.
    groups.resize(size / sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) != 0) {
      throw_io("ask for groups of socket", {}, no_offset, errno);
    }
  }
  groups.resize(size / sizeof(gid_t));
  return std::ranges::find(groups, group) != groups.end();
}

Descriptor process_of_peer(int socket, pid_t pid) {
  int process = -1;
  socklen_t size = sizeof(process);
  if (::getsockopt(socket, SOL_SOCKET, peer_pidfd, &process, &size) == 0) {
    return Descriptor(process);
  }
  if (errno != ENOPROTOOPT) {
    throw_io("find process of socket", {}, no_offset, errno);
  }
  return pid > 0 ? Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) : Descriptor();
}

const char* no_descriptors_left(int errno_value) noexcept {
  switch (errno_value) {
    case EMFILE:
      return "the server has no file descriptors left: start it with a higher limit (ulimit -n, in "
             "a unit of systemd LimitNOFILE)";
    case ENFILE:
      return "the server has no file descriptors left, because the machine has none (fs.file-max)";
    default:
      return nullptr;
  }
}

int wait_readable(int socket, MonotonicTime deadline) noexcept {
  return wait_for(socket, POLLIN, deadline, -1);
}

int send_all(int socket, std::span<const std::byte> bytes, MonotonicTime deadline) noexcept {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (!is_passing(errno)) {
      return errno;
    } else if (const int refused = wait_for(socket, POLLOUT, deadline, -1); refused != 0) {
      return refused;
    }
  }
  return 0;
}

int receive_all(int socket,
                std::span<std::byte> bytes,
                MonotonicTime deadline,
                int process) noexcept {
  while (!bytes.empty()) {
    if (const int refused = wait_for(socket, POLLIN, deadline, process); refused != 0) {
      return refused;
    }
    const ssize_t received = ::recv(socket, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (received > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(received));
    } else if (received == 0) {
      return ECONNRESET;
    } else if (!is_passing(errno)) {
      return errno;
    }
  }
  return 0;
}

}  // namespace hippogriff::noded
