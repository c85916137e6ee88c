// One request after the other, and threads for those that wait.
#include "noded/session.hpp"

#include "base/error.hpp"
#include "node/outside.hpp"
#include "noded/socket.hpp"

#include <sys/socket.h>

#include <array>
#include <chrono>
#include <span>
#include <string_view>
#include <utility>

namespace hippogriff::noded {

namespace {

// So long a client may leave a reply unread.
constexpr std::chrono::seconds send_timeout{10};

ReplyMessage reply_to(const RequestMessage& request) {
  ReplyMessage reply;
  reply.id = request.id;
  return reply;
}

node::NodeOptions serving(pid_t client, node::NodeOptions options) {
  options.served_pid = static_cast<std::uint32_t>(client);
  return options;
}

bool may_wait(const RequestMessage& request) {
  return request.timeout_ms > 0 &&
         (request.operation == Operation::reserve || request.operation == Operation::grow ||
          request.operation == Operation::grow_group || request.operation == Operation::claim);
}

}  // namespace

Session::Session(Descriptor& socket,
                 const Peer& peer,
                 std::shared_ptr<Guest> guest,
                 std::shared_ptr<SharedRuns> runs,
                 node::NodeOptions options)
    : process_(process_of_peer(socket.get(), peer.pid)),
      uid_(peer.uid),
      guest_(std::move(guest)),
      runs_(std::move(runs)),
      options_(serving(peer.pid, std::move(options))) {
  socket_ = std::move(socket);
  try {
    thread_ = std::thread([this] { serve(); });
  } catch (...) {
    socket = std::move(socket_);
    throw;
  }
}

Session::~Session() {
  end();
  thread_.join();
}

void Session::end() noexcept {
  static_cast<void>(::shutdown(socket_.get(), SHUT_RDWR));
}

void Session::serve() {
  try {
    serve_requests();
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory; the client sees the end
  }
  end();
  leave_node();
  over_ = true;
}

void Session::serve_requests() {
  RequestMessage request;
  while (receive(request) && handle(request)) {
  }
}

// False when the client has gone; one that is not understood is told so.
bool Session::receive(RequestMessage& request) {
  std::array<std::byte, sizeof(RequestMessage)> bytes{};
  if (receive_all(socket_.get(), bytes, MonotonicTime::max(), process_.get()) != 0) {
    return false;
  }
  if (decode_request(bytes, request) && (request.operation == Operation::hello) == !node_) {
    return true;
  }
  Answer refusal;
  set_failure(refusal.reply,
              {.status = Status::unsupported,
               .operation = "talk to node server",
               .detail = "not a request of protocol version " + std::to_string(protocol_version) +
                         ", or not in its turn"});
  send(refusal);
  return false;
}

// False when it was the last.
bool Session::handle(const RequestMessage& request) {
  if (request.operation == Operation::goodbye) {
    leave_node();
    over_ = true;  // before the reply: who has it may be somebody's next client at once
    send({.reply = reply_to(request)});
    return false;
  }
  if (request.operation == Operation::cancel) {
    cancel(request.handle);
    return true;
  }
  RequestMessage at_once = request;
  at_once.timeout_ms = 0;
  Answer answer = carry_out(at_once, nullptr);
  if (answer.reply.status == Status::busy && may_wait(request)) {
    answer = begin_wait(request, std::move(answer));
    if (answer.reply.status == Status::ok) {
      return true;
    }
  }
  send(answer);
  return node_ != nullptr;
}

Session::Answer Session::carry_out(const RequestMessage& request,
                                   const std::function<bool()>& cancelled) noexcept {
  Answer answer{.reply = reply_to(request)};
  try {
    carry_out_on_node(request, cancelled, answer);
  } catch (...) {
    Failure failure = current_failure();
    if (const char* const full = no_descriptors_left(failure.errno_value)) {
      failure.status = Status::busy;
      failure.detail = full;
    }
    set_failure(answer.reply, failure);
  }
  return answer;
}

void Session::carry_out_on_node(const RequestMessage& request,
                                const std::function<bool()>& cancelled,
                                Answer& answer) {
  const std::chrono::milliseconds timeout(request.timeout_ms);
  switch (request.operation) {
    case Operation::hello:
      answer.reply.value = join(request.name.data()) ? 1 : 0;
      break;
    case Operation::add_device:
      answer.reply.value = add_device(request.name.data(), request.size_bytes);
      break;
    case Operation::set_outside:
      look_outside(request);
      break;
    case Operation::set_policy:
      if (guest_ != nullptr) {
        guest_->check_policy();
      }
      node_->set_policy(request.policy,
                        {.grants_max = request.grants_max, .wait_ns_max = request.wait_ns_max});
      break;
    case Operation::reserve:
      answer.reply.value = reserve({.device = request.device,
                                    .size_bytes = request.size_bytes,
                                    .priority = request.priority,
                                    .timeout = timeout,
                                    .interrupted = cancelled});
      break;
    case Operation::grow:
      node_->grow(request.handle, request.size_bytes, timeout, cancelled);
      break;
    case Operation::shrink:
      node_->shrink(request.handle, request.size_bytes);
      break;
    case Operation::release:
      release(request.handle);
      break;
    case Operation::view:
      answer.rest = encode_view(node_->view(), answer.reply);
      break;
    case Operation::goodbye:
    case Operation::cancel:
      break;  // `handle` has them
    default:
      carry_out_in_group(request, cancelled, answer);
  }
}

std::uint32_t Session::add_device(std::string_view name, std::uint64_t capacity_bytes) {
  if (guest_ != nullptr) {
    capacity_bytes = guest_->check_device(*node_, name, capacity_bytes);
  }
  const std::uint32_t device = node_->add_device(name, capacity_bytes);
  devices_[device] = name;
  return device;
}

// Counted from before it waits.
std::uint64_t Session::reserve(const node::Request& request) {
  GuestReservation counted(guest_.get());
  const std::uint64_t handle = node_->reserve(request);
  counted.keep();
  ++reservations_;
  return handle;
}

void Session::release(std::uint64_t handle) {
  node_->release(handle);
  --reservations_;
  if (guest_ != nullptr) {
    guest_->give_reservations(1);
  }
}

// The client sees neither who the others are, nor their processes where it has its own pid
// namespace: its word counts where this process cannot look itself, unless it might keep others off
// by it.
void Session::look_outside(const RequestMessage& request) {
  const auto known = devices_.find(request.device);
  const bool looked =
      known != devices_.end() && node::look_outside(*node_, request.device, known->second);
  if (!looked && (guest_ == nullptr || guest_->decides())) {
    node_->set_unreserved(request.device, {.outside_bytes = request.size_bytes});
  }
}

// Status ok when the answer will come from the thread of the wait.
Session::Answer Session::begin_wait(const RequestMessage& request, Answer refused) {
  std::erase_if(waits_, [](Wait& wait) {
    const bool over = wait.over;
    if (over) {
      wait.thread.join();
    }
    return over;
  });
  if (waits_.size() >= waits_max) {
    set_failure(
        refused.reply,
        {.status = Status::busy,
         .operation = "wait for device memory",
         .detail = "one connection may wait " + std::to_string(waits_max) + " times at once"});
    return refused;
  }
  Wait& wait = waits_.emplace_back();
  wait.id = request.id;
  try {
    wait.thread = std::thread([this, request, &wait] {
      send(carry_out(request, [&wait] { return wait.cancelled.load(); }));
      wait.over = true;
    });
  } catch (...) {
    waits_.pop_back();
    set_failure(refused.reply, current_failure());
    return refused;
  }
  return {};
}

void Session::cancel(std::uint64_t id) noexcept {
  for (Wait& wait : waits_) {
    if (wait.id == id) {
      wait.cancelled = true;
    }
  }
}

void Session::end_waits() {
  if (node_ != nullptr) {
    node_->cancel_waits();
  }
  for (Wait& wait : waits_) {
    wait.thread.join();
  }
  waits_.clear();
}

// Does nothing the second time.
void Session::leave_node() {
  end_waits();
  give_all();
  const std::uint32_t left = reservations_.exchange(0);
  if (run_ != nullptr && leads_) {
    run_->keep_leader(guest_, left);
  } else if (guest_ != nullptr) {
    guest_->give_reservations(left);
  }
  node_.reset();
  if (run_ != nullptr) {
    run_->leave(socket_.get());
    run_.reset();
  }
}

void Session::send(const Answer& answer) noexcept {
  const std::scoped_lock turn(send_turn_);
  const MonotonicTime deadline = std::chrono::steady_clock::now() + send_timeout;
  if (send_all(socket_.get(), std::as_bytes(std::span(&answer.reply, 1)), deadline) != 0 ||
      send_all(socket_.get(), answer.rest, deadline) != 0) {
    end();
  }
}

}  // namespace hippogriff::noded
