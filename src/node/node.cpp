// The public operations: each is one change of the books, and perhaps a wait.
#include "node/node.hpp"

#include "base/error.hpp"
#include "base/size.hpp"
#include "node/fork_page.hpp"
#include "node/policy.hpp"
#include "node/transaction.hpp"

#include <algorithm>
#include <utility>

namespace hippogriff::node {

namespace {

MonotonicTime now() {
  return std::chrono::steady_clock::now();
}

std::string sizes(std::uint64_t size_bytes, std::uint64_t capacity_bytes) {
  std::string asked = format_size(size_bytes);
  std::string there = format_size(capacity_bytes);
  if (asked == there && size_bytes != capacity_bytes) {
    asked = std::to_string(size_bytes) + " bytes";
    there = std::to_string(capacity_bytes);
  }
  return asked + " asked, the device has " + there;
}

void keep(Books& books, std::uint32_t device, const Unreserved& use) {
  for (ReservationRecord& reservation : books.reservations) {
    if (reservation.device != device) {
      continue;
    }
    std::uint64_t used_bytes = reservation.kept_bytes;
    if (use.early) {
      const auto early = std::ranges::find(*use.early, reservation.id, &Unreserved::Early::id);
      used_bytes = early != use.early->end() ? early->used_bytes : 0;
    }
    reservation.kept_bytes = books.to_keep(reservation, used_bytes);
  }
}

}  // namespace

Node::Node(NodeOptions options)
    : options_(std::move(options)),
      place_(SegmentPlace::parse(options_.path)),
      fork_page_(std::make_shared<const ForkPage>()) {
  try {
    transact([](Books&, ClientSet&) { return Effects{}; });
  } catch (...) {
    end_settler();  // it may have begun
    throw;
  }
}

Node::~Node() {
  end_settler();
  // A segment that has been deleted is not made anew to take leave of it.
  if (fork_page_->wiped() || attachment_ == nullptr || !attachment_->intact()) {
    return;
  }
  try {
    transact([this](Books& books, ClientSet& granted) {
      const bool changed = books.erase_client(attachment_->client());
      serve_all(granted);
      return Effects{.changed = changed};
    });
  } catch (const Error&) {
    // The kernel drops our slot with the file, and the next one who looks removes what is left.
    end_settler();
  }
}

// A device that nobody has reservations of is as large as who comes says, or comes back to it.
void Node::fit_capacity(std::uint32_t device, std::uint64_t capacity_bytes, ClientSet& granted) {
  DeviceRecord& record = books_.devices[device];
  if (record.capacity_bytes == capacity_bytes) {
    return;
  }
  reap(granted);  // who is dead does not use it
  if (std::ranges::none_of(books_.reservations,
                           [&](const auto& other) { return other.device == device; })) {
    record.capacity_bytes = capacity_bytes;
    record.context_bytes = std::min(record.context_bytes, capacity_bytes);
  }
}

std::uint32_t Node::add_device(std::string_view name, std::uint64_t capacity_bytes) {
  if (!device_name_valid(name) || capacity_bytes == 0 || capacity_bytes > capacity_bytes_max) {
    throw_invalid("add device to node", "a short name without blanks, and 1 byte to 1 PiB");
  }
  const Device added{
      .name = std::string(name), .capacity_bytes = capacity_bytes, .key = device_key(name)};
  std::uint64_t known_capacity = 0;
  std::uint32_t place = no_device;
  bool is_new = false;
  transact([&](Books& books, ClientSet& granted) {
    if (is_new) {  // of a try that came to nothing
      devices_.pop_back();
    }
    known_capacity = 0;
    place = no_device;
    is_new = false;
    const std::uint32_t index = place_device(added);
    if (index == no_device) {
      return Effects{};
    }
    fit_capacity(index, capacity_bytes, granted);
    known_capacity = books.devices[index].capacity_bytes;
    if (known_capacity == capacity_bytes) {
      const auto at = std::ranges::find(devices_, added.name, &Device::name);
      place = static_cast<std::uint32_t>(at - devices_.begin());
      if (at == devices_.end()) {
        devices_.push_back(added);
        is_new = true;
        show_board();
      } else {
        at->capacity_bytes = capacity_bytes;
      }
    }
    serve_device(index, granted);
    return Effects{.changed = true};
  });
  if (place == no_device) {
    throw_invalid("add device to node",
                  known_capacity == 0
                      ? "there are " + std::to_string(devices_max) + " already"
                      : added.name + " is in use with " + format_size(known_capacity) + ", not " +
                            format_size(capacity_bytes) +
                            (added.name == "host" ? ": HIPPOGRIFF_HOST_MEMORY differs" : ""));
  }
  return place;
}

void Node::set_unreserved(std::uint32_t device_index, const Unreserved& use) {
  const Device known = device(device_index);
  transact([&](Books& books, ClientSet& granted) {
    const std::uint32_t index = place_device(known);
    if (index != no_device) {
      DeviceRecord& record = books.devices[index];
      record.outside_bytes = std::min(use.outside_bytes, capacity_bytes_max);
      if (use.context_bytes != 0) {
        record.context_bytes = std::min(use.context_bytes, record.capacity_bytes);
      }
      keep(books, index, use);
      serve_device(index, granted);
    }
    return Effects{.changed = true};
  });
}

void Node::set_policy(Policy policy, OvertakeBound bound) {
  if (bound.wait_ns_max < 0) {
    throw_invalid("set policy of node", "the longest wait is negative");
  }
  transact([&](Books& books, ClientSet& granted) {
    books.policy = policy;
    books.bound = bound;
    serve_all(granted);
    return Effects{.changed = true};
  });
}

std::uint64_t Node::reserve(const Request& request) {
  return reserve_as(Standing::waits, request);
}

std::uint64_t Node::defer(const Request& request) {
  return reserve_as(Standing::deferred, request);
}

std::uint64_t Node::reserve_as(Standing standing, const Request& request) {
  const MonotonicTime begin = now();
  const MonotonicTime deadline = begin + request.timeout;
  if (request.size_bytes == 0) {
    throw_invalid("reserve", "0 bytes");
  }
  Answer answer = Answer::full;
  std::uint64_t handle = 0;
  bool is_known = false;
  Device known;  // for what is said of a request that is not granted at once
  const auto queue = [&](Books& books, ClientSet& granted) {
    Effects effects;
    is_known = request.device < devices_.size();
    if (!is_known) {
      return effects;
    }
    answer = queue_new(standing, request, effects, granted);
    handle = effects.added ? effects.added->handle : 0;
    if (answer != Answer::granted) {
      known = devices_[request.device];
    }
    if (answer == Answer::never_fits) {
      known.capacity_bytes = books.devices[books.find_device(known.name)].capacity_bytes;
    }
    return effects;
  };
  transact_until(begin, deadline, request.interrupted, "reserve", queue);
  if (!is_known) {
    refuse_device(request.device);
  }
  if (answer == Answer::waits) {
    answer = await(handle, deadline, request.interrupted);
  }
  if (answer != Answer::granted) {
    refuse(answer, "reserve", known, request.size_bytes);
  }
  return handle;
}

void Node::grow(std::uint64_t handle,
                std::uint64_t size_bytes,
                std::chrono::milliseconds timeout,
                const std::function<bool()>& interrupted) {
  const MonotonicTime begin = now();
  const MonotonicTime deadline = begin + timeout;
  Answer answer = Answer::gone;
  bool usable = false;
  Device known;
  transact_until(begin, deadline, interrupted, "grow", [&](Books&, ClientSet& granted) {
    Effects effects;
    ReservationRecord* record = record_of(handle);
    usable = record != nullptr && !record->waits() && record->deferred == 0 &&
             size_bytes > record->size_bytes;
    if (!usable) {
      return effects;
    }
    known = devices_[holding(handle)->record.device];
    known.capacity_bytes = books_.devices[record->device].capacity_bytes;
    answer = Answer::never_fits;
    if (size_bytes <= known.capacity_bytes) {
      record->wanted_bytes = size_bytes;
      record->grower = 0;
      answer = queue_growth(*record, timeout.count() > 0, effects.changed, granted);
    }
    return effects;
  });
  if (!usable) {
    throw_invalid("grow", "no such reservation, or it is larger, grows already, or is deferred");
  }
  if (answer == Answer::waits) {
    answer = await(handle, deadline, interrupted);
  }
  if (answer != Answer::granted) {
    refuse(answer, "grow", known, size_bytes);
  }
}

// Leaves so much of a reservation, without the books, which are told later. False where it cannot
// be. Under mutex_.
bool Node::put_off(std::uint64_t handle, std::uint64_t left_bytes) {
  Holding* held = holding(handle);
  if (held == nullptr || left_bytes > held->record.size_bytes ||
      (left_bytes != 0 && held->record.waits())) {
    return false;
  }
  const auto before = std::ranges::find(put_off_, held->record.id, &Less::id);
  if (before != put_off_.end()) {
    before->left_bytes = left_bytes;
  } else {
    put_off_.push_back({.id = held->record.id,
                        .device = held->record.device,
                        .known_bytes = held->record.size_bytes,
                        .left_bytes = left_bytes});
  }
  held->record.size_bytes = left_bytes;
  held->record.wanted_bytes = left_bytes;
  if (left_bytes == 0) {
    std::erase_if(holdings_, [&](const Holding& other) { return other.handle == handle; });
  }
  settle_later();
  return true;
}

// Leaves so much of a reservation: in the books by `change`, or, where they cannot be reached, or
// could not before and have not been told yet, in what goes into them later. False where it cannot
// be.
template <typename Change>
bool Node::give_back(std::uint64_t handle, std::uint64_t left_bytes, const Change& change) {
  refuse_fork();
  const MonotonicTime deadline = now() + options_.lock_timeout;
  const std::scoped_lock turn(mutex_);
  if (settles() && put_off(handle, left_bytes)) {
    return true;
  }
  try {
    bool done = false;
    transact_in_turn(deadline, [&](Books& books, ClientSet& granted) {
      const Effects effects = change(record_of(handle), books, granted);
      done = effects.changed;
      return effects;
    });
    return done;
  } catch (const Error&) {
    return put_off(handle, left_bytes);
  }
}

void Node::shrink(std::uint64_t handle, std::uint64_t size_bytes) {
  const auto change = [&](ReservationRecord* record, Books&, ClientSet& granted) {
    const bool usable = record != nullptr && !record->waits() && size_bytes <= record->size_bytes;
    if (usable) {
      record->size_bytes = size_bytes;
      record->wanted_bytes = size_bytes;
      serve_device(record->device, granted);
    }
    return Effects{.changed = usable};
  };
  if (size_bytes == 0 || !give_back(handle, size_bytes, change)) {
    throw_invalid("shrink", "no such reservation, or it is smaller, or grows");
  }
}

void Node::release(std::uint64_t handle) {
  const auto change = [&](const ReservationRecord* record, Books& books, ClientSet& granted) {
    if (record == nullptr) {
      return Effects{};
    }
    const std::uint32_t index = record->device;
    if (record->waits()) {
      granted.set(record->client);  // a thread of ours waits for its growth
    }
    books.erase(record->id);
    serve_device(index, granted);
    return Effects{.changed = true, .removed_handle = handle};
  };
  if (!give_back(handle, 0, change)) {
    throw_invalid("release", "no such reservation");
  }
}

NodeView Node::view() {
  NodeView view;
  transact([&](Books& books, ClientSet& granted) {
    const bool changed = reap(granted);
    view.now_ns = static_cast<std::uint64_t>(monotonic_ns());
    view.policy = books.policy;
    view.bound = books.bound;
    view.devices = books.devices;
    view.reservations.clear();
    for (const ReservationRecord& record : books.reservations) {
      view.reservations.push_back({record, attachment_->user_pid_of(record.client)});
    }
    view.clients = clients();
    view.transfers = attachment_->transfers().of_all();
    view.arrays = attachment_->arrays().of_all();
    return Effects{.changed = changed};
  });
  return view;
}

void Node::refuse(Answer answer,
                  const char* operation,
                  const Device& device,
                  std::uint64_t size_bytes,
                  std::uint64_t held_bytes) {
  Failure failure{.status = Status::out_of_device_memory,
                  .operation = operation,
                  .object = device.name,
                  .detail = sizes(size_bytes, device.capacity_bytes)};
  if (held_bytes != 0) {
    failure.detail += ", and " + format_size(held_bytes) + " are this command's already";
  }
  if (answer == Answer::stuck) {
    failure.detail += ", and all who hold its memory wait for more";
  } else if (answer == Answer::barred) {
    failure.detail += std::string(", ") + contexts_leave_less;
  } else if (answer == Answer::full) {
    failure.status = Status::busy;
    failure.detail = "there are " + std::to_string(reservations_max) + " reservations already";
  } else if (answer == Answer::twice) {
    failure.status = Status::invalid_argument;
    failure.detail = "a reservation of it is left for its first use already: release that first";
  } else if (answer == Answer::busy) {
    failure.status = Status::busy;
    failure.detail += ", not free now";
  }
  throw Error(std::move(failure));
}

}  // namespace hippogriff::node
