// The checks of every member of every message.
#include "noded/protocol.hpp"

#include "noded/run_token.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace hippogriff::noded {

namespace {

// The characters up to the first zero; nothing but zeros may follow.
template <std::size_t Size>
bool text_valid(const std::array<char, Size>& text) {
  const auto end = std::find(text.begin(), text.end(), '\0');
  return end != text.end() && std::all_of(end, text.end(), [](char c) { return c == '\0'; });
}

template <std::size_t Size>
void set_text(std::array<char, Size>& text, std::string_view value) {
  text.fill('\0');
  std::copy_n(value.begin(), std::min(value.size(), Size - 1), text.begin());
}

template <std::size_t Size>
std::string text_of(const std::array<char, Size>& text) {
  return {text.data(), ::strnlen(text.data(), Size)};
}

// What an operation uses of a request: the rest stays zero.
RequestMessage used_members(const RequestMessage& request) {
  RequestMessage used;
  used.operation = request.operation;
  used.id = request.id;
  switch (request.operation) {
    case Operation::add_device:
      used.size_bytes = request.size_bytes;
      used.name = request.name;
      break;
    case Operation::set_outside:
    case Operation::take:
    case Operation::give:
      used.device = request.device;
      used.size_bytes = request.size_bytes;
      break;
    case Operation::set_policy:
      used.policy = request.policy;
      used.grants_max = request.grants_max;
      used.wait_ns_max = request.wait_ns_max;
      break;
    case Operation::reserve:
      used.device = request.device;
      used.size_bytes = request.size_bytes;
      used.timeout_ms = request.timeout_ms;
      used.priority = request.priority;
      break;
    case Operation::defer:
      used.device = request.device;
      used.size_bytes = request.size_bytes;
      used.priority = request.priority;
      break;
    case Operation::grow_group:
      used.device = request.device;
      used.size_bytes = request.size_bytes;
      used.timeout_ms = request.timeout_ms;
      break;
    case Operation::claim:
      used.device = request.device;
      used.timeout_ms = request.timeout_ms;
      break;
    case Operation::granted:
    case Operation::group_used:
    case Operation::deferred:
      used.device = request.device;
      break;
    case Operation::grow:
      used.handle = request.handle;
      used.size_bytes = request.size_bytes;
      used.timeout_ms = request.timeout_ms;
      break;
    case Operation::shrink:
      used.handle = request.handle;
      used.size_bytes = request.size_bytes;
      break;
    case Operation::release:
    case Operation::cancel:
      used.handle = request.handle;
      break;
    case Operation::hello:
      used.name = request.name;
      break;
    case Operation::view:
    case Operation::goodbye:
    case Operation::share:
      break;
  }
  return used;
}

// A client that shall follow says whom, and in one way.
bool hello_valid(const RequestMessage& request) {
  return request.operation != Operation::hello || request.name.front() == '\0' ||
         RunToken::parse(request.name.data()).has_value();
}

bool status_valid(Status status) {
  return status >= Status::ok && status <= Status::internal;
}

}  // namespace

bool decode_request(std::span<const std::byte, sizeof(RequestMessage)> bytes,
                    RequestMessage& request) noexcept {
  std::memcpy(&request, bytes.data(), sizeof(request));
  const RequestMessage used = used_members(request);
  return std::memcmp(&used, &request, sizeof(request)) == 0 && request.id != 0 &&
         request.operation >= Operation::hello && request.operation <= last_operation &&
         request.timeout_ms >= 0 && request.timeout_ms <= timeout_ms_max &&
         static_cast<std::uint32_t>(request.policy) < node::policy_count &&
         text_valid(request.name) && hello_valid(request);
}

bool decode_reply(std::span<const std::byte, sizeof(ReplyMessage)> bytes,
                  ReplyMessage& reply) noexcept {
  std::memcpy(&reply, bytes.data(), sizeof(reply));
  return reply.magic == protocol_magic && reply.version == protocol_version && reply.unused == 0 &&
         reply.unused_too == 0 && status_valid(reply.status) &&
         static_cast<std::uint32_t>(reply.policy) < node::policy_count &&
         reply.device_count <= node::devices_max &&
         reply.reservation_count <= node::reservations_max && text_valid(reply.operation) &&
         text_valid(reply.object) && text_valid(reply.detail);
}

std::size_t view_bytes(const ReplyMessage& reply) noexcept {
  return reply.device_count * sizeof(node::DeviceRecord) +
         reply.reservation_count * sizeof(ViewedReservation);
}

std::vector<std::byte> encode_view(const node::NodeView& view, ReplyMessage& reply) {
  reply.policy = view.policy;
  reply.device_count = static_cast<std::uint32_t>(view.devices.size());
  reply.reservation_count = static_cast<std::uint32_t>(view.reservations.size());
  std::vector<std::byte> bytes(view_bytes(reply));
  std::byte* at = bytes.data();
  for (const node::DeviceRecord& device : view.devices) {
    std::memcpy(at, &device, sizeof(device));
    at += sizeof(device);
  }
  for (const node::NodeView::Reservation& reservation : view.reservations) {
    const ViewedReservation viewed{.record = reservation.record, .pid = reservation.pid};
    std::memcpy(at, &viewed, sizeof(viewed));
    at += sizeof(viewed);
  }
  return bytes;
}

bool decode_view(const ReplyMessage& reply,
                 std::span<const std::byte> bytes,
                 node::NodeView& view) {
  if (bytes.size() != view_bytes(reply)) {
    return false;
  }
  node::Books books;  // whose rules are the view's
  books.next_number = node::numbers_max;
  books.policy = reply.policy;
  view = {.policy = reply.policy};
  const std::byte* at = bytes.data();
  for (std::uint32_t count = 0; count < reply.device_count; ++count) {
    std::memcpy(&books.devices.emplace_back(), at, sizeof(node::DeviceRecord));
    at += sizeof(node::DeviceRecord);
  }
  for (std::uint32_t count = 0; count < reply.reservation_count; ++count) {
    ViewedReservation viewed;
    std::memcpy(&viewed, at, sizeof(viewed));
    at += sizeof(viewed);
    books.reservations.push_back(viewed.record);
    view.reservations.push_back({.record = viewed.record, .pid = viewed.pid});
  }
  view.devices = books.devices;
  return books.valid();
}

void set_failure(ReplyMessage& reply, const Failure& failure) noexcept {
  reply.status = failure.status;
  reply.errno_value = failure.errno_value;
  set_text(reply.operation, failure.operation);
  set_text(reply.object, failure.object);
  set_text(reply.detail, failure.detail);
}

Failure failure_of(const ReplyMessage& reply) {
  return {.status = reply.status,
          .operation = text_of(reply.operation),
          .object = text_of(reply.object),
          .errno_value = reply.errno_value,
          .detail = text_of(reply.detail)};
}

}  // namespace hippogriff::noded
