// Requests of several threads on one socket: who waits reads, for itself and for the others.
#include "noded/connection.hpp"

#include "base/error.hpp"
#include "noded/run_token.hpp"
#include "noded/server_place.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <exception>
#include <span>
#include <utility>

namespace hippogriff::noded {

namespace {

// So often a wait that can be interrupted asks whether it is.
constexpr std::chrono::milliseconds look_interval{50};

MonotonicTime now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

Connection::Connection(ConnectionOptions options) : options_(std::move(options)) {
  const ServerPlace place = ServerPlace::parse(options_.path);
  options_.path = place.path;
  socket_ = connect_to(options_.path, now() + options_.connect_timeout);
  // Anybody may make that path under /tmp. One that was given is the caller's word: root in a
  // container may well ask a user's server.
  const Peer server = peer_of(socket_.get());
  const bool believed =
      trusted(server.uid) ||
      (place.group ? is_member(socket_.get(), server, *place.group) : !place.is_default);
  if (!believed) {
    throw Error({.status = Status::unsupported,
                 .operation = "connect to node server",
                 .object = options_.path,
                 .detail = "it belongs to user " + std::to_string(server.uid) +
                           (place.group ? ", who is not in the group" : "")});
  }
  RequestMessage hello{.operation = Operation::hello};
  if (RunToken::parse(options_.reservation)) {
    std::ranges::copy(options_.reservation, hello.name.begin());
  }
  follows_ = call(hello).reply.value == 1;
}

Connection::~Connection() {
  if (fork_page_.wiped()) {
    return;
  }
  try {
    call({.operation = Operation::goodbye});
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): what follows does without it
    // The server sees the end of the connection.
  }
  // A forked child may have the socket as well: closing alone would not end the connection.
  static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
}

std::uint32_t Connection::add_device(std::string_view name, std::uint64_t capacity_bytes) {
  RequestMessage request{.operation = Operation::add_device, .size_bytes = capacity_bytes};
  // A name that no message can carry goes as none, which the node refuses with the same words.
  if (name.size() < request.name.size() && name.find('\0') == std::string_view::npos) {
    std::copy(name.begin(), name.end(), request.name.begin());
  }
  return static_cast<std::uint32_t>(call(request).reply.value);
}

// Whose it is the server is not told, and keeps it for nobody.
void Connection::set_unreserved(std::uint32_t device, const node::Unreserved& use) {
  std::uint64_t size_bytes = use.outside_bytes;
  if (use.early) {
    for (const node::Unreserved::Early& early : *use.early) {
      size_bytes += early.used_bytes;
    }
  }
  call({.operation = Operation::set_outside, .size_bytes = size_bytes, .device = device});
}

void Connection::set_policy(node::Policy policy, node::OvertakeBound bound) {
  call({.operation = Operation::set_policy,
        .policy = policy,
        .grants_max = bound.grants_max,
        .wait_ns_max = bound.wait_ns_max});
}

std::uint64_t Connection::reserve(const node::Request& request) {
  return call({.operation = Operation::reserve,
               .size_bytes = request.size_bytes,
               .timeout_ms = wire_timeout_ms(request.timeout),
               .device = request.device,
               .priority = request.priority},
              request.interrupted)
      .reply.value;
}

void Connection::grow(std::uint64_t handle,
                      std::uint64_t size_bytes,
                      std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupted) {
  call({.operation = Operation::grow,
        .handle = handle,
        .size_bytes = size_bytes,
        .timeout_ms = wire_timeout_ms(timeout)},
       interrupted);
}

void Connection::shrink(std::uint64_t handle, std::uint64_t size_bytes) {
  call({.operation = Operation::shrink, .handle = handle, .size_bytes = size_bytes});
}

void Connection::release(std::uint64_t handle) {
  call({.operation = Operation::release, .handle = handle});
}

node::NodeView Connection::view() {
  const Answer answer = call({.operation = Operation::view});
  node::NodeView view;
  if (!decode_view(answer.reply, answer.rest, view)) {
    throw Error({.status = Status::io_error,
                 .operation = "view node",
                 .object = options_.path,
                 .errno_value = EBADMSG,
                 .detail = "the server's answer makes no sense"});
  }
  return view;
}

Connection::Answer Connection::call(RequestMessage request,
                                    const std::function<bool()>& interrupted) {
  if (fork_page_.wiped()) {
    throw Error({.status = Status::forked,
                 .operation = "use node server",
                 .object = options_.path,
                 .detail = "a child process makes its own connection"});
  }
  const MonotonicTime sent_by = now() + options_.reply_margin;
  const MonotonicTime deadline = sent_by + std::chrono::milliseconds(request.timeout_ms);
  Call ours;
  std::unique_lock lock(mutex_);
  if (lost_) {
    throw_lost();
  }
  calls_.push_back(&ours);
  ours.id = next_id_++;
  request.id = ours.id;
  const int refused = send_all(socket_.get(), std::as_bytes(std::span(&request, 1)), sent_by);
  // Who hangs up may have said why: that is read below.
  if (refused != 0 && refused != EPIPE && refused != ECONNRESET) {
    lose(refused);
  }
  wait(ours, lock, deadline, interrupted);
  std::erase(calls_, &ours);
  if (!ours.answer) {
    throw_lost();
  }
  if (ours.answer->reply.status != Status::ok) {
    throw Error(failure_of(ours.answer->reply));
  }
  return *std::move(ours.answer);
}

// Until it is answered or the connection is lost. `interrupted` is asked at each look, without the
// lock: it may be anybody's code.
void Connection::wait(Call& call,
                      std::unique_lock<std::mutex>& lock,
                      MonotonicTime deadline,
                      const std::function<bool()>& interrupted) noexcept {
  bool asks = interrupted != nullptr;
  while (!call.answer && !lost_) {
    if (asks) {
      lock.unlock();
      const bool end = interrupted();
      lock.lock();
      if (call.answer || lost_) {
        return;
      }
      if (end) {
        asks = false;
        deadline = std::min(deadline, now() + options_.reply_margin);
        cancel(call);
      }
    }
    const MonotonicTime until = asks ? std::min(deadline, now() + look_interval) : deadline;
    if (!reading_) {
      read_for(lock, until, deadline);
    } else if (changed_.wait_until(lock, until) == std::cv_status::timeout && !call.answer &&
               until == deadline) {
      lose(ETIMEDOUT);
    }
  }
}

// The answer comes all the same: that the wait was cancelled, or what it came to before.
void Connection::cancel(const Call& call) noexcept {
  const RequestMessage request{.operation = Operation::cancel, .id = next_id_++, .handle = call.id};
  const int refused =
      send_all(socket_.get(), std::as_bytes(std::span(&request, 1)), now() + options_.reply_margin);
  if (refused != 0 && refused != EPIPE && refused != ECONNRESET) {
    lose(refused);
  }
}

// Reads one answer, whosever it is, if one begins to come until then.
void Connection::read_for(std::unique_lock<std::mutex>& lock,
                          MonotonicTime until,
                          MonotonicTime deadline) noexcept {
  reading_ = true;
  lock.unlock();
  Answer answer;
  int refused = wait_readable(socket_.get(), until);
  const bool none_yet = refused == ETIMEDOUT && until < deadline;
  if (refused == 0) {
    refused = receive(answer, deadline);
  }
  lock.lock();
  reading_ = false;
  if (refused == 0) {
    deliver(std::move(answer));
  } else if (!none_yet) {
    lose(refused);
  }
  changed_.notify_all();
}

// 0 or an errno.
int Connection::receive(Answer& answer, MonotonicTime deadline) const noexcept {
  std::array<std::byte, sizeof(ReplyMessage)> bytes{};
  if (const int refused = receive_all(socket_.get(), bytes, deadline); refused != 0) {
    return refused;
  }
  if (!decode_reply(bytes, answer.reply)) {
    const ReplyMessage ours;
    const bool other_version =
        answer.reply.magic == ours.magic && answer.reply.version != ours.version;
    return other_version ? EPROTONOSUPPORT : EBADMSG;
  }
  try {
    answer.rest.resize(view_bytes(answer.reply));
  } catch (const std::exception&) {
    return ENOMEM;
  }
  return receive_all(socket_.get(), answer.rest, deadline);
}

void Connection::deliver(Answer answer) noexcept {
  const std::uint64_t id = answer.reply.id;
  const auto at = std::ranges::find(calls_, id, &Call::id);
  if (at != calls_.end()) {
    (*at)->answer = std::move(answer);
    return;
  }
  if (id == 0 && answer.reply.status != Status::ok) {
    refusal_ = failure_of(answer.reply);
  }
  lose(EBADMSG);
}

void Connection::lose(int errno_value) noexcept {
  if (!lost_) {
    lost_ = true;
    lost_errno_ = errno_value;
    // Wakes the thread that reads.
    static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
    changed_.notify_all();
  }
}

void Connection::throw_lost() const {
  if (refusal_) {
    throw Error(*refusal_);
  }
  throw Error({.status = Status::io_error,
               .operation = "ask node server",
               .object = options_.path,
               .errno_value = lost_errno_,
               .detail = "the connection is over, and what was reserved through it is released"});
}

}  // namespace hippogriff::noded
