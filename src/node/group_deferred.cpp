// A leader's reservation that is taken at its first use: whoever of the group needs it first queues
// for it, as a newcomer, and all others of the group wait for that same request.
#include "base/error.hpp"
#include "base/size.hpp"
#include "node/node.hpp"
#include "node/policy.hpp"
#include "node/transaction.hpp"

#include <algorithm>
#include <string>

namespace hippogriff::node {

// Deferred, or asked for and not granted yet.
ReservationRecord* Node::leaders_unclaimed(const Device& device) {
  const ClientSlot& slot = attachment_->slot();
  const std::uint32_t index = books_.find_device(device.name);
  const auto at = std::ranges::find_if(books_.reservations, [&](const ReservationRecord& record) {
    return record.client == slot.leader() && record.device == index && record.size_bytes == 0 &&
           (record.deferred != 0 || record.grower != 0);
  });
  return slot.follows() && slot.leader_is_in_place() && at != books_.reservations.end() ? &*at
                                                                                        : nullptr;
}

std::uint64_t Node::deferred_bytes(std::uint32_t device_index) {
  const Device known = device(device_index);
  std::uint64_t size_bytes = 0;
  transact([&](Books&, ClientSet&) {
    const ReservationRecord* record = leaders_unclaimed(known);
    size_bytes = record != nullptr ? record->wanted_bytes : 0;
    if (record == nullptr) {
      put_leaders_grant_right(known, {});  // it may have been granted to one who has died since
    }
    return Effects{};
  });
  return size_bytes;
}

// Granted; else it waits, or is deferred as before. Who waited for the one that asked before, which
// died or gave up, has its place.
Node::Answer Node::claim(ReservationRecord& record,
                         std::uint64_t waited_ticket,
                         bool may_wait,
                         ClientSet& granted) {
  const ReservationRecord before = record;
  record.deferred = 0;
  record.grower = attachment_->client() + 1;
  if (record.ticket != waited_ticket) {
    record.ticket = books_.next_number++;
    record.since_ns = monotonic_ns();
    record.overtaken = 0;
  }
  serve_device(record.device, granted);
  if (!record.waits()) {
    return Answer::granted;
  }
  if (may_wait) {
    return Answer::waits;
  }
  record = before;  // whoever waits for the former request still has its place
  serve_device(record.device, granted);
  return Answer::busy;
}

Node::Answer Node::look_at_deferred(const Device& device,
                                    std::uint64_t& waited_ticket,
                                    bool& asked,
                                    bool give_up,
                                    Effects& effects,
                                    ClientSet& granted) {
  const auto is_asked = [&](const ReservationRecord& record) {
    return asked && record.waits() && record.grower == attachment_->client() + 1;
  };
  const bool barred = is_refused_among_the_living(
      [&] {
        const ReservationRecord* waits = leaders_unclaimed(device);
        return waits != nullptr && is_asked(*waits) ? waits : nullptr;
      },
      give_up,
      effects,
      granted);
  ReservationRecord* record = leaders_unclaimed(device);
  if (record == nullptr) {
    const bool there = attachment_->slot().follows() && leaders_record(device) != nullptr;
    return there && put_leaders_grant_right(device, effects) != 0 ? Answer::granted : Answer::gone;
  }
  Answer answer = Answer::waits;
  if (!record->waits()) {
    effects.changed = true;
    asked = true;
    answer = claim(*record, waited_ticket, !give_up, granted);
  } else if (give_up) {
    answer = Answer::busy;
  }
  const bool asks = is_asked(*record);
  if (asks && barred) {
    answer = Answer::barred;
  }
  if (asks && answer != Answer::waits) {
    effects.changed = true;
    record->take_back_wish();
    serve_device(record->device, granted);
  }
  waited_ticket = record->ticket;
  return answer;
}

void Node::claim_deferred(std::uint32_t device_index,
                          std::chrono::milliseconds timeout,
                          const std::function<bool()>& interrupted) {
  const Device known = device(device_index);
  bool cancelled = false;
  std::uint64_t wanted_bytes = 0;
  std::uint64_t waited_ticket = 0;
  bool asked = false;  // by this thread: others of this process may wait for the same request
  const MonotonicTime deadline = std::chrono::steady_clock::now() + timeout;
  const Answer answer = await_answer(
      [&](bool give_up, Effects& effects, ClientSet& granted) {
        if (const ReservationRecord* record = leaders_unclaimed(known)) {
          wanted_bytes = record->wanted_bytes;
        }
        return look_at_deferred(known, waited_ticket, asked, give_up, effects, granted);
      },
      Sleeper::group,
      deadline,
      [&] {
        cancelled = cancelled || waits_cancelled_ || (interrupted && interrupted());
        return cancelled;
      });
  if (answer == Answer::granted) {
    show_leaders_grant(known, deadline);
    return;
  }
  Failure failure{.status = Status::out_of_device_memory,
                  .operation = "reserve for this command on",
                  .object = known.name,
                  .detail = "nothing is left for it"};
  if (answer == Answer::barred) {
    failure.detail = format_size(wanted_bytes) + " asked, " + contexts_leave_less;
  } else if (answer == Answer::busy) {
    const bool waited = timeout.count() > 0;
    failure.status = cancelled ? Status::cancelled : waited ? Status::timed_out : Status::busy;
    failure.detail =
        format_size(wanted_bytes) + " not free " +
        (waited ? "within " + std::to_string(timeout.count()) + " ms" : std::string("now"));
  }
  throw Error(std::move(failure));
}

}  // namespace hippogriff::node
