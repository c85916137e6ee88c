// A leader's reservation grows for those who follow it: the leader itself may be another program by
// now. One growth at a time; whoever asks next waits for that first.
#include "base/error.hpp"
#include "node/node.hpp"
#include "node/policy.hpp"
#include "node/transaction.hpp"

#include <algorithm>

namespace hippogriff::node {

ReservationRecord* Node::leaders_record(const Device& device) {
  const std::uint32_t leader = attachment_->slot().leader();
  const std::uint32_t index = books_.find_device(device.name);
  const auto at = std::ranges::find_if(books_.reservations, [&](const ReservationRecord& record) {
    return record.client == leader && record.device == index && record.size_bytes != 0;
  });
  return at != books_.reservations.end() ? &*at : nullptr;
}

Node::Answer Node::ask_for_group(ReservationRecord& record,
                                 std::uint64_t missing_bytes,
                                 bool may_wait,
                                 Effects& effects,
                                 ClientSet& granted) {
  if (missing_bytes > books_.devices[record.device].capacity_bytes - record.size_bytes) {
    return Answer::never_fits;
  }
  record.wanted_bytes = record.size_bytes + missing_bytes;
  record.grower = attachment_->client() + 1;
  return queue_growth(record, may_wait, effects.changed, granted);
}

// What the leader's board says is put right each time: the growth may have been granted by others.
Node::Answer Node::look_at_group(const Device& device,
                                 std::uint64_t size_bytes,
                                 bool give_up,
                                 Effects& effects,
                                 ClientSet& granted) {
  if (reap(granted)) {
    effects.changed = true;
  }
  ReservationRecord* record = leaders_record(device);
  if (record == nullptr || !attachment_->slot().leader_is_in_place()) {
    return Answer::gone;
  }
  Board& board = attachment_->board();
  const std::uint64_t id = record->id;
  const bool ours = record->grower == attachment_->client() + 1;
  Answer answer = Answer::waits;
  if (!record->waits()) {
    board.set_leaders_grant(device.key, record->size_bytes);
    const std::uint64_t used = board.group_used(device.key);
    const std::uint64_t left = record->size_bytes - std::min(used, record->size_bytes);
    answer = size_bytes <= left
                 ? Answer::granted
                 : ask_for_group(*record, size_bytes - left, !give_up, effects, granted);
    record = books_.find(id);
    board.set_leaders_grant(device.key, record->size_bytes);
  } else if (give_up) {
    answer = Answer::busy;
    if (ours) {
      record->wanted_bytes = record->size_bytes;
      effects.changed = true;
      serve(books_, record->device, monotonic_ns(), granted);
    }
  }
  return answer;
}

void Node::grow_group(std::uint32_t device_index,
                      std::uint64_t size_bytes,
                      std::chrono::milliseconds timeout) {
  const MonotonicTime deadline = std::chrono::steady_clock::now() + timeout;
  Device known = device(device_index);
  if (size_bytes > capacity_bytes_max) {
    refuse(Answer::never_fits, "grow", known, size_bytes);
  }
  Answer answer = Answer::waits;
  while (answer == Answer::waits) {
    const auto left = deadline - std::chrono::steady_clock::now();
    std::shared_ptr<Attachment> place;
    std::uint32_t leader = 0;
    std::uint32_t signal = 0;
    transact([&](Books&, ClientSet& granted) {
      Effects effects;
      place = attachment_;
      leader = place->slot().leader();
      signal = place->signal(leader);
      const bool give_up = waits_cancelled_ || left <= std::chrono::nanoseconds::zero();
      answer = look_at_group(known, size_bytes, give_up, effects, granted);
      return effects;
    });
    if (answer == Answer::waits) {
      place->wait(leader, signal, std::min<std::chrono::nanoseconds>(options_.look_interval, left));
    }
  }
  if (answer != Answer::granted) {
    refuse(answer == Answer::gone ? Answer::never_fits : answer, "grow", known, size_bytes);
  }
}

}  // namespace hippogriff::node
