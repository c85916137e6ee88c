// What client and server say to each other: fixed layouts in the machine's byte order, since both
// are on one machine. Either may have been written by anybody: nothing is used before it is
// checked.
#pragma once

#include "base/error.hpp"
#include "node/node.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hippogriff::noded {

inline constexpr std::uint32_t protocol_magic = 0x444f4e48;  // "HNOD"
inline constexpr std::uint16_t protocol_version = 4;

// Longer waits are waited for as long as this, some thirty years.
inline constexpr std::int64_t timeout_ms_max = 1'000'000'000'000;

constexpr std::int64_t wire_timeout_ms(std::chrono::milliseconds timeout) noexcept {
  return std::clamp<std::int64_t>(timeout.count(), 0, timeout_ms_max);
}

// `hello` is the first request of a connection, `goodbye` the last: what is held is released before
// its reply. `cancel` ends the wait of another request, whose reply then says so, and has no reply
// itself: that request may be answered already. From `share` on they are those of Node's groups:
// who shares is told words (`object` of the reply) that make others its followers when they say
// hello with them.
enum class Operation : std::uint16_t {
  hello = 1,
  add_device,
  set_outside,
  set_policy,
  reserve,
  grow,
  shrink,
  release,
  view,
  goodbye,
  cancel,
  share,
  take,
  give,
  granted,
  group_used,
  grow_group,
  defer,
  deferred,
  claim,
};

inline constexpr Operation last_operation = Operation::claim;

// Members that an operation does not use are zero.
struct RequestMessage {
  std::uint32_t magic = protocol_magic;
  std::uint16_t version = protocol_version;
  Operation operation = Operation::hello;
  std::uint64_t id = 0;          // the reply has it too; not 0
  std::uint64_t handle = 0;      // grow, shrink, release; cancel: the other request's id
  std::uint64_t size_bytes = 0;  // add_device: the capacity; of all that have a size
  std::int64_t timeout_ms = 0;   // of those that wait
  std::uint32_t device = 0;      // of all but add_device that are about one
  std::int32_t priority = 0;     // reserve, defer
  node::Policy policy = node::Policy::fifo;  // set_policy, with the two after it
  std::uint32_t grants_max = 0;
  std::int64_t wait_ns_max = 0;
  std::array<char, 48> name{};  // add_device; hello: nothing or a RunToken; zeros at the end
};

static_assert(sizeof(RequestMessage) == 112);

// Followed by the view's devices and reservations where it has any. Texts end with a zero.
struct ReplyMessage {
  std::uint32_t magic = protocol_magic;
  std::uint16_t version = protocol_version;
  std::uint16_t unused = 0;
  std::uint64_t id = 0;  // 0: the connection is refused, whatever is asked
  Status status = Status::ok;
  std::int32_t errno_value = 0;
  std::uint64_t value =
      0;  // reserve, defer: the handle; add_device: the device; granted, group_used, deferred:
          // bytes; hello: 1 for a follower; take: 1 for what was taken
  node::Policy policy = node::Policy::fifo;
  std::uint32_t device_count = 0;
  std::uint32_t reservation_count = 0;
  std::uint32_t unused_too = 0;
  std::array<char, 48> operation{};
  std::array<char, 160> object{};
  std::array<char, 256> detail{};
};

static_assert(sizeof(ReplyMessage) == 512);

struct ViewedReservation {
  node::ReservationRecord record;
  std::uint64_t pid = 0;
};

static_assert(sizeof(ViewedReservation) == 80);
static_assert(sizeof(node::DeviceRecord) == 72);

inline constexpr std::size_t view_bytes_max = node::devices_max * sizeof(node::DeviceRecord) +
                                              node::reservations_max * sizeof(ViewedReservation);

// False unless the bytes are one request of this version whose members are in their ranges, and
// zero where they mean nothing. A device's name is left to the node.
bool decode_request(std::span<const std::byte, sizeof(RequestMessage)> bytes,
                    RequestMessage& request) noexcept;

// The same for a reply; the counts are within their bounds then.
bool decode_reply(std::span<const std::byte, sizeof(ReplyMessage)> bytes,
                  ReplyMessage& reply) noexcept;

// How many bytes follow the reply.
std::size_t view_bytes(const ReplyMessage& reply) noexcept;

// Sets the counts and the policy; returns what follows the reply.
std::vector<std::byte> encode_view(const node::NodeView& view, ReplyMessage& reply);
// False unless `bytes` are a view that a node can have.
bool decode_view(const ReplyMessage& reply, std::span<const std::byte> bytes, node::NodeView& view);

// Texts are cut where they are too long. An offset and a device's status are not sent: nodes have
// none.
void set_failure(ReplyMessage& reply, const Failure& failure) noexcept;
[[nodiscard]] Failure failure_of(const ReplyMessage& reply);

}  // namespace hippogriff::noded
