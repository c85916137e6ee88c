// Queueing for memory, and the wait until it is there.
#include "base/error.hpp"
#include "node/policy.hpp"
#include "node/transaction.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

namespace hippogriff::node {

Node::Answer Node::queue_new(Standing standing,
                             const Request& request,
                             Effects& effects,
                             ClientSet& granted) {
  const std::uint32_t index = books_.find_device(devices_[request.device].name);
  if (index == no_device || books_.reservations.size() >= reservations_max) {
    effects.changed = reap(granted);
  }
  if (index == no_device || books_.reservations.size() >= reservations_max) {
    return Answer::full;
  }
  fit_capacity(index, devices_[request.device].capacity_bytes, granted);
  if (request.size_bytes > books_.devices[index].capacity_bytes) {
    return Answer::never_fits;
  }
  const bool defers = standing == Standing::deferred;
  if (defers && std::ranges::any_of(books_.reservations, [&](const ReservationRecord& record) {
        return record.client == attachment_->client() && record.device == index &&
               record.unclaimed();
      })) {
    return Answer::twice;
  }
  ReservationRecord asked;
  asked.wanted_bytes = request.size_bytes;
  asked.since_ns = monotonic_ns();
  asked.device = index;
  asked.client = attachment_->client();
  asked.priority = request.priority;
  asked.deferred = defers ? 1 : 0;
  asked.kept_bytes = books_.to_keep(asked, 0);
  const std::uint64_t id = books_.append(asked);
  serve_device_at(asked.since_ns, index, granted);
  const bool may_wait = request.timeout.count() > 0;  // and look then whether somebody has died
  if (books_.find(id)->waits() && !may_wait) {
    effects.changed = reap(granted) || effects.changed;
  }
  const ReservationRecord record = *books_.find(id);
  if (record.waits() && !may_wait) {
    books_.erase(id);
    return Answer::busy;
  }
  effects.changed = true;
  effects.added = Holding{.handle = next_handle_++, .record = record};
  effects.added->record.device = request.device;
  return record.waits() ? Answer::waits : Answer::granted;
}

Node::Answer Node::queue_growth(ReservationRecord& record,
                                bool may_wait,
                                bool& changed,
                                ClientSet& granted) {
  const std::uint64_t id = record.id;
  const std::uint32_t index = record.device;
  const ReservationRecord before = record;
  record.ticket = books_.next_number++;
  record.since_ns = monotonic_ns();
  record.overtaken = 0;
  serve_device_at(record.since_ns, index, granted);
  changed = true;
  if (!books_.find(id)->waits()) {
    return Answer::granted;
  }
  changed = reap(granted);
  ReservationRecord& after = *books_.find(id);
  if (!after.waits()) {
    return Answer::granted;
  }
  const bool stuck = books_.growth_is_stuck(id);
  if (may_wait && !stuck) {
    changed = true;
    return Answer::waits;
  }
  after.wanted_bytes = before.size_bytes;
  after.grower = 0;
  if (changed) {
    // Others may have been held up by the growth that is taken back.
    serve_device(index, granted);
  }
  return stuck ? Answer::stuck : Answer::busy;
}

// So that others can go on. One that keeps nothing and does not grow holds nobody up.
bool Node::is_refused(const ReservationRecord& record) const {
  return (record.grows() || record.kept_bytes != 0) &&
         to_refuse(books_, record.device, monotonic_ns()) == record.id;
}

// Looks for the dead, and says whether the request of who looks has to be refused nevertheless. A
// share of the asking will do but for who gives up, or would be refused because of the dead.
bool Node::is_refused_among_the_living(const std::function<const ReservationRecord*()>& ours,
                                       bool give_up,
                                       Effects& effects,
                                       ClientSet& granted) {
  const auto refused = [&] {
    const ReservationRecord* record = ours();
    return record != nullptr && record->waits() && is_refused(*record);
  };
  effects.changed = (give_up ? reap(granted) : reap_share(granted)) || effects.changed;
  if (give_up || !refused()) {
    return false;
  }
  effects.changed = reap(granted) || effects.changed;
  return refused();
}

// Whether the wait is over. Giving up takes the request back unless it was granted before that.
Node::Answer Node::look(std::uint64_t handle, bool give_up, Effects& effects, ClientSet& granted) {
  ReservationRecord* record = record_of(handle);
  if (record == nullptr) {
    return Answer::gone;
  }
  if (!record->waits()) {
    return Answer::granted;
  }
  const bool refused =
      is_refused_among_the_living([&] { return record_of(handle); }, give_up, effects, granted);
  record = record_of(handle);
  if (!record->waits()) {
    return Answer::granted;
  }
  if (!give_up && !refused) {
    return Answer::waits;
  }
  const std::uint32_t index = record->device;
  const bool grows = record->grows();
  if (grows) {
    record->wanted_bytes = record->size_bytes;
  } else {
    books_.erase(record->id);
    effects.removed_handle = handle;
  }
  serve_device(index, granted);
  effects.changed = true;
  return !refused ? Answer::busy : grows ? Answer::stuck : Answer::barred;
}

// Where to sleep after a look, and on which value, is read under the lock: who grants changes it
// later.
Node::Answer Node::await_answer(const Look& look,
                                Sleeper sleeper,
                                MonotonicTime deadline,
                                const std::function<bool()>& gives_up) {
  Answer answer = Answer::waits;
  while (answer == Answer::waits) {
    const bool told_to = gives_up && gives_up();
    const auto left = deadline - std::chrono::steady_clock::now();
    const bool give_up = told_to || waits_cancelled_ || left <= std::chrono::nanoseconds::zero();
    std::shared_ptr<Attachment> place;
    std::uint32_t client = 0;
    std::uint32_t signal = 0;
    try {
      transact_within(give_up ? options_.lock_timeout : short_try, [&](Books&, ClientSet& granted) {
        Effects effects;
        place = attachment_;
        client = sleeper == Sleeper::group ? place->slot().leader() : place->client();
        signal = place->signal(client);
        answer = look(give_up, effects, granted);
        return effects;
      });
    } catch (const Error& error) {
      if (error.failure().status != Status::busy || give_up) {
        const std::scoped_lock turn(mutex_);
        settle_later();  // takes back what was wished for
        throw;
      }
      // Somebody keeps the node's lock; our place in the queue is not lost by that.
      answer = Answer::waits;
      place = nullptr;
      std::this_thread::sleep_for(try_pause);
    }
    if (answer == Answer::waits && place != nullptr) {
      place->wait(client, signal, std::min<std::chrono::nanoseconds>(options_.look_interval, left));
    }
  }
  return answer;
}

// Granted, stuck or barred.
Node::Answer Node::await(std::uint64_t handle,
                         MonotonicTime deadline,
                         const std::function<bool()>& interrupted) {
  Answer answer = Answer::waits;
  bool cancelled = false;
  try {
    answer = await_answer(
        [&](bool give_up, Effects& effects, ClientSet& granted) {
          return look(handle, give_up, effects, granted);
        },
        Sleeper::alone,
        deadline,
        [&] {
          cancelled = waits_cancelled_ || (interrupted && interrupted());
          return cancelled;
        });
  } catch (const Error&) {
    abandon(handle);
    throw;
  }
  if (answer == Answer::busy || answer == Answer::gone) {
    cancelled = cancelled || answer == Answer::gone;
    throw Error({.status = cancelled ? Status::cancelled : Status::timed_out,
                 .operation = "wait for device memory",
                 .object = path()});
  }
  return answer;
}

// Without the books, which cannot be reached: they are put right later.
void Node::abandon(std::uint64_t handle) {
  const std::scoped_lock turn(mutex_);
  Holding* held = holding(handle);
  if (held != nullptr && held->record.size_bytes != 0) {
    held->record.wanted_bytes = held->record.size_bytes;
  } else {
    std::erase_if(holdings_, [&](const Holding& other) { return other.handle == handle; });
  }
  settle_later();
}

}  // namespace hippogriff::node
