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

// The leader may have several reservations of the device. What is not committed yet is not shown.
std::uint64_t Node::put_leaders_grant_right(const Device& device, const Effects& effects) {
  const std::uint32_t leader = attachment_->slot().leader();
  const std::uint32_t index = books_.find_device(device.name);
  std::uint64_t sum = 0;
  for (const ReservationRecord& record : books_.reservations) {
    sum += record.client == leader && record.device == index ? record.size_bytes : 0;
  }
  if (!effects.changed && !mended_) {
    attachment_->board().set_leaders_grant(device.key, sum);
  }
  return sum;
}

// Only when it is in the books for good: who is killed before that was granted nothing.
void Node::show_leaders_grant(const Device& device, MonotonicTime deadline) {
  await_answer(
      [&](bool /*give_up*/, const Effects& effects, ClientSet& /*granted*/) {
        put_leaders_grant_right(device, effects);
        return mended_ ? Answer::waits : Answer::granted;
      },
      Sleeper::group,
      deadline,
      nullptr);
}

// What the leader's board says is put right each time: growth may have been granted by others.
Node::Answer Node::look_at_group(const Device& device,
                                 std::uint64_t size_bytes,
                                 bool give_up,
                                 Effects& effects,
                                 ClientSet& granted) {
  const auto is_ours = [&](const ReservationRecord& record) {
    return record.grower == attachment_->client() + 1;
  };
  const bool barred = is_refused_among_the_living(
      [&] {
        const ReservationRecord* waits = leaders_record(device);
        return waits != nullptr && is_ours(*waits) ? waits : nullptr;
      },
      give_up,
      effects,
      granted);
  ReservationRecord* record = leaders_record(device);
  if (record == nullptr || !attachment_->slot().leader_is_in_place()) {
    return Answer::gone;
  }
  const std::uint64_t sum = put_leaders_grant_right(device, effects);
  const std::uint64_t left = sum - std::min(attachment_->board().group_used(device.key), sum);
  const bool fits = size_bytes <= left;
  if (record->waits()) {
    const bool refused = barred && !fits;
    if (is_ours(*record) && (fits || give_up || refused)) {
      record->wanted_bytes = record->size_bytes;
      record->grower = 0;
      effects.changed = true;
      serve_device(record->device, granted);
    }
    return fits      ? Answer::granted
           : refused ? Answer::stuck
           : give_up ? Answer::busy
                     : Answer::waits;
  }
  if (fits) {
    return Answer::granted;
  }
  return ask_for_group(*record, size_bytes - left, !give_up, effects, granted);
}

void Node::grow_group(std::uint32_t device_index,
                      std::uint64_t size_bytes,
                      std::chrono::milliseconds timeout,
                      const std::function<bool()>& interrupted) {
  const Device known = device(device_index);
  if (size_bytes > capacity_bytes_max) {
    refuse(Answer::never_fits, "grow", known, size_bytes);
  }
  const MonotonicTime deadline = std::chrono::steady_clock::now() + timeout;
  const Answer answer = await_answer(
      [&](bool give_up, Effects& effects, ClientSet& granted) {
        return look_at_group(known, size_bytes, give_up, effects, granted);
      },
      Sleeper::group,
      deadline,
      interrupted);
  if (answer == Answer::granted) {
    show_leaders_grant(known, deadline);
  } else {
    refuse(answer == Answer::gone ? Answer::never_fits : answer,
           "grow",
           known,
           size_bytes,
           granted_bytes(device_index));
  }
}

}  // namespace hippogriff::node
