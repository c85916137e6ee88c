// The C functions about sharing devices with other processes.
#include "node/node.hpp"
#include "noded/server.hpp"
#include "transfer/abi.hpp"
#include "transfer/node_report.hpp"
#include "transfer/node_share.hpp"

#include <algorithm>
#include <string>
#include <utility>

struct hippogriff_reservation {
  std::shared_ptr<hippogriff::NodeShare> share;
  std::string device;
  std::string uuid;
  std::uint64_t handle = 0;
  std::uint64_t generation = 0;
};

namespace {

using hippogriff::current_share;
using hippogriff::Error;
using hippogriff::guarded;
using hippogriff::NodeShare;
using hippogriff::Status;
using hippogriff::throw_invalid;

// The largest that any device can be asked for; more is refused as more than the device has.
constexpr size_t size_max = hippogriff::node::capacity_bytes_max;

std::chrono::milliseconds milliseconds_of(int64_t timeout_ms) {
  return std::chrono::milliseconds(timeout_ms < 0
                                       ? hippogriff::longest_timeout_ms
                                       : std::min(timeout_ms, hippogriff::longest_timeout_ms));
}

std::shared_ptr<NodeShare> share_or_refusal() {
  auto share = current_share();
  if (share == nullptr) {
    throw Error({.status = Status::unsupported,
                 .operation = "use the node",
                 .detail = "HIPPOGRIFF_NODE is off"});
  }
  return share;
}

void check_owner(const hippogriff_reservation* reservation) {
  if (reservation == nullptr) {
    throw_invalid("use a reservation", "it is NULL");
  }
  if (reservation->generation != hippogriff::process_generation()) {
    throw Error({.status = Status::forked,
                 .operation = "use a reservation",
                 .detail = "it is the parent's: a child process reserves for itself"});
  }
}

// The caller's options in our size, of whatever version they are.
// The function asks `options` as long as it is used.
std::function<bool()> interrupted_of(const hippogriff_reserve_options& options) {
  if (options.interrupted == nullptr) {
    return nullptr;
  }
  return [&options] { return options.interrupted(options.context) != 0; };
}

hippogriff_reserve_options read_options(const hippogriff_reserve_options* given) {
  hippogriff_reserve_options options = HIPPOGRIFF_RESERVE_OPTIONS_INIT;
  if (given != nullptr) {
    if (given->struct_size != sizeof(options)) {
      throw_invalid("reserve", "struct_size is not that of this version's options");
    }
    options = *given;
  }
  if ((options.flags & ~std::uint32_t{HIPPOGRIFF_RESERVE_AT_FIRST_USE}) != 0) {
    throw_invalid("reserve", "flags has bits that this version does not know");
  }
  return options;
}

}  // namespace

extern "C" {

int hippogriff_reserve(size_t size,
                       const hippogriff_reserve_options* options,
                       hippogriff_reservation** reservation) {
  return guarded([&] {
    if (reservation == nullptr || size == 0) {
      throw_invalid("reserve", "reservation is NULL or size is 0");
    }
    const hippogriff_reserve_options chosen = read_options(options);
    const auto share = share_or_refusal();
    const auto facts = NodeShare::identify(chosen.device == nullptr ? "" : chosen.device);
    share->account(facts);
    auto made = std::make_unique<hippogriff_reservation>();
    made->share = share;
    made->device = facts.name;
    made->uuid = facts.uuid;
    made->generation = hippogriff::process_generation();
    hippogriff::node::Request request{.device = 0,
                                      .size_bytes = std::min(size, size_max + 1),
                                      .priority = chosen.priority,
                                      .timeout = milliseconds_of(chosen.timeout_ms),
                                      .interrupted = interrupted_of(chosen)};
    made->handle = (chosen.flags & HIPPOGRIFF_RESERVE_AT_FIRST_USE) != 0
                       ? share->defer(facts.uuid, request)
                       : share->reserve(facts.uuid, std::move(request));
    *reservation = made.release();
  });
}

int hippogriff_claim(const hippogriff_reserve_options* options) {
  return guarded([&] {
    const hippogriff_reserve_options chosen = read_options(options);
    if (chosen.priority != 0 || chosen.flags != 0) {
      throw_invalid("claim a reservation", "its priority and flags stay");
    }
    const auto share = current_share();
    if (share != nullptr && share->waits_at_first_use()) {
      const auto facts = NodeShare::identify(chosen.device == nullptr ? "" : chosen.device);
      share->first_use(facts).wait(milliseconds_of(chosen.timeout_ms), interrupted_of(chosen));
    }
  });
}

int hippogriff_reservation_resize(hippogriff_reservation* reservation,
                                  size_t size,
                                  const hippogriff_reserve_options* options) {
  return guarded([&] {
    check_owner(reservation);
    const hippogriff_reserve_options chosen = read_options(options);
    if (chosen.device != nullptr || chosen.priority != 0 || chosen.flags != 0) {
      throw_invalid("resize a reservation", "its device, priority and flags stay");
    }
    // Another thread may release it meanwhile: nothing of it is touched after the wait.
    const auto share = reservation->share;
    const std::string uuid = reservation->uuid;
    share->resize(uuid,
                  reservation->handle,
                  std::min(size, size_max + 1),
                  milliseconds_of(chosen.timeout_ms),
                  interrupted_of(chosen));
  });
}

int hippogriff_reservation_get(hippogriff_reservation* reservation,
                               size_t* size,
                               const char** device) {
  return guarded([&] {
    check_owner(reservation);
    if (size != nullptr) {
      *size = reservation->share->reserved_bytes(reservation->uuid, reservation->handle);
    }
    if (device != nullptr) {
      *device = reservation->device.c_str();
    }
  });
}

int hippogriff_reservation_release(hippogriff_reservation* reservation) {
  return guarded([&] {
    const std::unique_ptr<hippogriff_reservation> owned(reservation);
    if (owned != nullptr && owned->generation == hippogriff::process_generation()) {
      owned->share->release(owned->uuid, owned->handle);
    }
  });
}

int hippogriff_node_status(char** json) {
  return guarded([&] {
    if (json == nullptr) {
      throw_invalid("ask for the node's status", "json is NULL");
    }
    *json = hippogriff::copy_string(hippogriff::node_json(*share_or_refusal()));
  });
}

int hippogriff_node_set_policy(const char* policy,
                               uint32_t overtakes_max,
                               int64_t overtake_ms_max) {
  return guarded([&] {
    const auto parsed = hippogriff::parse_policy(policy == nullptr ? "" : policy);
    if (!parsed || overtake_ms_max < 0 || overtake_ms_max > hippogriff::longest_timeout_ms) {
      throw_invalid("set the node's policy",
                    "it is fifo, mmu, priority-fifo, priority-mmu or aging-mmu, with bounds that "
                    "are not negative");
    }
    share_or_refusal()->node().set_policy(
        *parsed, {.grants_max = overtakes_max, .wait_ns_max = overtake_ms_max * 1'000'000});
  });
}

int hippogriff_noded_run(const char* socket_path, int stop_fd) {
  return guarded([&] {
    hippogriff::noded::ServerOptions options;
    options.path = socket_path == nullptr ? "" : socket_path;
    options.node.path = hippogriff::NodeShare::segment_of_environment();
    hippogriff::noded::run_server(std::move(options), stop_fd);
  });
}

int hippogriff_node_hand_over(char** leader) {
  return guarded([&] {
    if (leader == nullptr) {
      throw_invalid("hand reservations over", "leader is NULL");
    }
    const auto share = share_or_refusal();
    const std::string text = share->node().leader();
    char* copy = hippogriff::copy_string(text);
    try {
      share->node().hand_over();
    } catch (...) {
      hippogriff_free_string(copy);
      throw;
    }
    *leader = copy;
  });
}

}  // extern "C"
