// Accepting, refusing, stopping.
#include "noded/server.hpp"

#include "base/error.hpp"
#include "base/own_descriptor.hpp"
#include "noded/socket.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <span>
#include <utility>

namespace hippogriff::noded {

namespace {

// No memory left for a connection: it stays in the queue so long.
constexpr int out_of_room_pause_ms = 100;

// Threads started in its scope never run the program's handlers.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all{};
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }

  ~SignalBlock() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_{};
};

Descriptor accept_from(int listener) {
  return Descriptor(
      own_descriptor(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
}

bool somebody_waits(int listener) {
  pollfd polled{.fd = listener, .events = POLLIN, .revents = 0};
  return ::poll(&polled, 1, 0) > 0;
}

// Small enough for a fresh socket's buffer: nobody is waited for.
void refuse(int socket, const Failure& failure) {
  ReplyMessage reply;
  set_failure(reply, failure);
  static_cast<void>(send_all(socket, std::as_bytes(std::span(&reply, 1)), MonotonicTime::min()));
}

}  // namespace

Server::Server(ServerOptions options)
    : options_(std::move(options)),
      listener_(ServerPlace::parse(options_.path)),
      stop_(own_descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      spare_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_.valid() || !spare_.valid()) {
    throw_io("make eventfd", {}, no_offset, errno);
  }
  const node::Node probe(options_.node);
}

void Server::stop() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::write(stop_.get(), &one, sizeof(one)));
}

void Server::run(int stop_fd) {
  std::array<pollfd, 3> polled = {{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                   {.fd = stop_fd, .events = POLLIN, .revents = 0},
                                   {.fd = listener_.fd(), .events = POLLIN, .revents = 0}}};
  for (;;) {
    const int ready = ::poll(polled.data(), polled.size(), -1);
    if (ready < 0 && errno != EINTR) {
      throw_io("wait for clients", path(), no_offset, errno);
    }
    if (ready > 0 && (polled[0].revents != 0 || polled[1].revents != 0)) {
      break;
    }
    if (ready > 0) {
      accept_all();
    }
  }
  // All at once: each may take as long as the node's lock is kept.
  for (Session& session : sessions_) {
    session.end();
  }
  sessions_.clear();
}

void Server::accept_all() {
  for (;;) {
    // First: what those who left still have may be what a new one needs.
    std::erase_if(sessions_, [](const Session& session) { return session.over(); });
    Descriptor socket = accept_from(listener_.fd());
    if (!socket.valid()) {
      make_room(errno);
      return;
    }
    accept_one(std::move(socket));
  }
}

// A client that cannot be accepted would wait, and not learn for what. accept wants a descriptor
// before it looks for a client: where there is none the spare is kept, or a session that opens the
// node just now would have it for good.
void Server::make_room(int errno_value) {
  const char* const full = no_descriptors_left(errno_value);
  if (full != nullptr && spare_.valid()) {
    if (!somebody_waits(listener_.fd())) {
      return;
    }
    spare_ = Descriptor();
    if (const Descriptor socket = accept_from(listener_.fd()); socket.valid()) {
      refuse(socket.get(),
             {.status = Status::busy,
              .operation = "connect to node server",
              .object = path(),
              .errno_value = errno_value,
              .detail = full});
    }
  } else if (full != nullptr || errno_value == ENOBUFS || errno_value == ENOMEM) {
    pollfd stop{.fd = stop_.get(), .events = POLLIN, .revents = 0};
    static_cast<void>(::poll(&stop, 1, out_of_room_pause_ms));
  }
  if (!spare_.valid()) {
    spare_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  }
}

void Server::accept_one(Descriptor socket) {
  const int fd = socket.get();
  Failure failure{.operation = "connect to node server", .object = path()};
  try {
    const Peer peer = peer_of(fd);
    if (refuses(fd, peer, failure)) {
      refuse(fd, failure);
    } else {
      const SignalBlock no_signals;
      sessions_.emplace_back(socket, peer, guest(peer.uid), runs_, options_.node);
    }
  } catch (...) {
    // No descriptor, memory or thread: this client is refused, the others go on.
    const Failure cause = current_failure();
    const char* const full = no_descriptors_left(cause.errno_value);
    failure.status = full != nullptr ? Status::busy : cause.status;
    failure.errno_value = cause.errno_value;
    failure.detail = full != nullptr ? full : "in the server: " + cause.message();
    refuse(fd, failure);
  }
}

// Says why.
bool Server::refuses(int socket, const Peer& peer, Failure& failure) const {
  const std::optional<gid_t>& group = listener_.place().group;
  if (!trusted(peer.uid) && !(group && is_member(socket, peer, *group))) {
    failure.status = Status::unsupported;
    failure.detail = "it serves user " + std::to_string(::geteuid()) +
                     (group ? " and group " + std::to_string(*group) : "") + ", not user " +
                     std::to_string(peer.uid);
    return true;
  }
  // Leaders whose processes have ended have a slot each, as long as those who follow them.
  const auto now = static_cast<std::uint32_t>(sessions_.size()) + runs_->kept_leaders();
  const auto his =
      std::ranges::count(sessions_, peer.uid, &Session::uid) + runs_->kept_leaders(peer.uid);
  failure.status = Status::busy;
  if (now >= options_.clients_max) {
    failure.detail = "it has " + std::to_string(now) + " clients already";
    return true;
  }
  if (group && his >= guest_clients_max(options_.clients_max, now)) {
    failure.detail = "user " + std::to_string(peer.uid) + " has " + std::to_string(his) +
                     " of its " + std::to_string(now) +
                     " clients already, all that one user may have";
    return true;
  }
  return false;
}

std::shared_ptr<Guest> Server::guest(uid_t uid) {
  if (!listener_.place().group) {
    return nullptr;
  }
  std::shared_ptr<Guest>& guest = guests_[uid];
  if (guest == nullptr) {
    guest = std::make_shared<Guest>(uid, trusted(uid), totals_);
  }
  return guest;
}

void run_server(ServerOptions options, int stop_fd) {
  Server server(std::move(options));
  server.run(stop_fd);
}

}  // namespace hippogriff::noded
