// What this process holds, kept beside the books: after a repair it goes back into them.
#include "base/error.hpp"
#include "node/fork_page.hpp"
#include "node/node.hpp"
#include "node/policy.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace hippogriff::node {

namespace {

constexpr int join_attempts_max = 100;
// Nobody removes the books, makes new ones and reads the old ones in less.
constexpr std::chrono::microseconds moment{4};

}  // namespace

void Node::refuse_fork() const {
  if (fork_page_->wiped()) {
    throw Error({.status = Status::forked,
                 .operation = "use node",
                 .object = path(),
                 .detail = "a child process makes its own"});
  }
}

// Who makes the books anew reads those that were removed after that, once their lock is free: under
// a lock that was taken before, or else was seen to be of a file with a name, all that is committed
// is carried over. Before the lock a look spares us the memory of a truncated file, and waits for
// who stands still in a removed one; a moment after the last one it would only cost.
void Node::attach_and_lock(MonotonicTime deadline) {
  for (int attempt = 0; attempt < join_attempts_max; ++attempt) {
    const auto now = std::chrono::steady_clock::now();
    const bool seen_now = attempt == 0 && attachment_ && now - seen_intact_ < moment;
    if (!seen_now) {
      attach();
    }
    step(options_.steps, "before lock");
    if (!seen_now) {
      attachment_->lock(deadline);
    } else if (!attachment_->try_lock()) {
      continue;
    }
    if (attachment_->intact()) {
      seen_intact_ = now;
      return;
    }
    attachment_->unlock();
  }
  throw Error({.status = Status::busy,
               .operation = "use node",
               .object = path(),
               .detail = "other programs keep removing it"});
}

void Node::attach() {
  if (attachment_ && attachment_->intact()) {
    return;
  }
  Books fresh;
  fresh.policy = options_.policy;
  fresh.bound = options_.bound;
  seen_generation_ = 0;
  note_time_namespace();
  // Made first: while it cannot be made, the next operation tries again.
  std::optional<Leader> self;
  if (attachment_) {
    self = Leader{.client = attachment_->client(), .term = attachment_->slot().term()};
  }
  const auto join = [&] {
    return std::make_shared<Attachment>(
        place_, fresh, options_.steps, options_.leader, options_.served_pid, self);
  };
  auto made = join();
  // It may have been replaced before our slot said that somebody uses it.
  for (int attempt = 0; !made->intact() && attempt < join_attempts_max; ++attempt) {
    made = join();
  }
  const std::scoped_lock alone(boards_mutex_);
  if (attachment_ && attachment_->readable()) {
    carry_on(*made);
  }
  attachment_ = std::move(made);
  show_board();
}

// What is used goes on being used.
void Node::carry_on(Attachment& next) const {
  for (const Device& device : devices_) {
    if (next.board().add_device(device.key)) {
      next.board().carry_on(device.key,
                            attachment_->board().used(attachment_->client(), device.key),
                            next.slot().resumed());
    }
  }
}

// Whether the books have our holdings, and no others of our slot: a predecessor's, or what a repair
// brought back.
bool Node::consistent() {
  if (books_.generation != seen_generation_) {
    return false;
  }
  const std::uint32_t client = attachment_->client();
  const auto count = std::ranges::count(books_.reservations, client, &ReservationRecord::client);
  std::size_t next = 0;
  return count == std::ssize(holdings_) && std::ranges::all_of(holdings_, [&](const Holding& held) {
           const ReservationRecord* record = books_.find_in_order(held.record.id, next);
           return record != nullptr && record->client == client;
         });
}

void Node::reconcile(ClientSet& granted) {
  const std::uint32_t client = attachment_->client();
  learn_from_board();
  std::erase_if(books_.reservations, [&](const ReservationRecord& record) {
    return record.client == client && std::ranges::none_of(holdings_, [&](const Holding& held) {
             return held.record.id == record.id;
           });
  });
  // What a predecessor in our slot waited for, or what we gave up without saying so.
  for (ReservationRecord& record : books_.reservations) {
    if (record.grower == client + 1) {
      record.take_back_wish();
    }
  }
  for (const Device& device : devices_) {
    static_cast<void>(place_device(device));
  }
  seen_generation_ = books_.generation;
  for (Holding& held : holdings_) {
    restore(held);
  }
  serve_all(granted);
}

// What of a device the board still has, and we do not: books that were not made anew say it, with
// what followers had it grow; of others we know no more than what it was.
std::uint64_t Node::given_back_bytes(std::uint32_t device) {
  std::uint64_t sum = 0;
  for (const Less& less : put_off_) {
    const ReservationRecord* record =
        books_.generation == known_generation_ ? books_.find(less.id) : nullptr;
    const std::uint64_t had = record != nullptr ? record->size_bytes : less.known_bytes;
    sum += less.device == device ? had - std::min(had, less.left_bytes) : 0;
  }
  return sum;
}

// What those who follow this client were granted since it looked last stands on its board. Before
// anything of ours is removed from the books.
void Node::learn_from_board() {
  if (attachment_->slot().follows()) {
    return;
  }
  for (std::uint32_t index = 0; index < devices_.size(); ++index) {
    std::uint64_t more = attachment_->board().granted(devices_[index].key);
    more -= std::min(more, given_back_bytes(index));
    for (const Holding& held : holdings_) {
      const std::uint64_t known = held.record.device == index ? held.record.size_bytes : 0;
      more -= std::min(more, known);
    }
    for (Holding& held : holdings_) {
      ReservationRecord& record = held.record;
      if (record.device == index && record.unclaimed() && record.wanted_bytes <= more) {
        more -= record.wanted_bytes;
        record.deferred = 0;
        record.grower = 0;
        record.grant();
      }
    }
    const auto grown = std::ranges::find_if(holdings_, [&](const Holding& held) {
      return held.record.device == index && held.record.size_bytes != 0;
    });
    if (more != 0 && grown != holdings_.end()) {
      ReservationRecord& record = grown->record;
      const std::uint64_t most = devices_[index].capacity_bytes - record.size_bytes;
      record.size_bytes += std::min(more, most);
      record.wanted_bytes = std::max(record.wanted_bytes, record.size_bytes);
    }
  }
}

// What we hold is so, whatever the books say; what we wait for, or have left for its first use,
// they may have granted meanwhile.
void Node::restore(Holding& held) {
  const std::uint32_t client = attachment_->client();
  const std::uint32_t index = books_.find_device(devices_[held.record.device].name);
  ReservationRecord* found = books_.find(held.record.id);
  ReservationRecord record = held.record;
  if (record.grower != 0) {
    record.take_back_wish();  // of a follower, which asks again
  }
  if (found != nullptr && found->client == client && found->device == index) {
    const bool granted = record.waits() && found->size_bytes >= record.wanted_bytes;
    const bool still_grows = found->grows() && found->size_bytes == record.size_bytes;
    if (record.size_bytes != 0 && !granted && !still_grows) {
      found->size_bytes = record.size_bytes;
      found->wanted_bytes = record.wanted_bytes;
      found->kept_bytes = 0;
      found->grower = 0;
      found->deferred = 0;
    }
    return;
  }
  if (index == no_device || books_.reservations.size() >= reservations_max) {
    seen_generation_ = 0;  // no room: once more in the next operation
    return;
  }
  record.device = index;
  record.client = client;
  record.wanted_bytes = std::min(record.wanted_bytes, books_.devices[index].capacity_bytes);
  record.size_bytes = std::min(record.size_bytes, record.wanted_bytes);
  record.kept_bytes = books_.to_keep(record, record.kept_bytes);
  if (found == nullptr) {
    books_.insert_with_id(record);
  } else {
    held.record.id = books_.append(record);
  }
}

bool Node::commit(const Effects& effects) {
  holdings_.reserve(holdings_.size() + 1);
  if (!attachment_->commit(books_)) {
    seen_generation_ = 0;  // what was remembered of these books may not be in them
    return false;
  }
  if (effects.added) {
    holdings_.push_back(*effects.added);
  }
  std::erase_if(holdings_,
                [&](const Holding& held) { return held.handle == effects.removed_handle; });
  remember();
  return true;
}

void Node::remember() {
  std::size_t next = 0;
  for (Holding& held : holdings_) {
    if (const ReservationRecord* record = books_.find_in_order(held.record.id, next)) {
      const std::uint32_t device = held.record.device;
      held.record = *record;
      held.record.device = device;
    }
  }
  for (std::size_t index = 0; index < devices_.size(); ++index) {
    std::uint64_t granted_bytes = 0;
    for (const Holding& held : holdings_) {
      granted_bytes += held.record.device == index ? held.record.size_bytes : 0;
    }
    attachment_->board().set_granted(devices_[index].key, granted_bytes);
  }
  put_off_.clear();
  known_generation_ = books_.generation;
}

// The device's index in the books, where it is added when it is not there; no_device when full.
std::uint32_t Node::place_device(const Device& device) {
  const std::uint32_t index = books_.find_device(device.name);
  if (index != no_device || books_.devices.size() >= devices_max) {
    return index;
  }
  DeviceRecord record;
  std::ranges::copy(device.name, record.name.begin());
  record.capacity_bytes = device.capacity_bytes;
  books_.devices.push_back(record);
  return static_cast<std::uint32_t>(books_.devices.size() - 1);
}

// Takes back what a follower of a leader waited for and died: nobody may be granted it. True when
// there was any.
bool Node::forget_dead_wishes(const ClientSet& clients) {
  if (clients.all()) {
    step(options_.steps, "asking after all");
  }
  bool changed = false;
  for (ReservationRecord& record : books_.reservations) {
    if (record.grower != 0 && record.waits() && clients.test(record.grower - 1) &&
        !attachment_->lives(record.grower - 1)) {
      record.take_back_wish();
      changed = true;
    }
  }
  mended_ = mended_ || changed;
  return changed;
}

// Removes what the dead held and wanted. True when there was any.
bool Node::reap(ClientSet& granted) {
  return reap_those(ClientSet().set(), granted);
}

// Of one who waits, among others: who is alive is asked of the kernel, under the lock, so that all
// who wait share the asking. Each takes another part in each interval, for the dead take none.
bool Node::reap_share(ClientSet& granted) {
  ClientSet known;
  ClientSet waiting;
  for (const ReservationRecord& record : books_.reservations) {
    const std::uint32_t asker = record.grower != 0 ? record.grower - 1 : record.client;
    known.set(record.client);
    known.set(asker);
    waiting.set(asker, waiting.test(asker) || record.waits());
  }
  std::size_t rank = static_cast<std::size_t>(
      monotonic_ns() / std::chrono::nanoseconds(options_.look_interval).count());
  for (std::uint32_t client = 0; client < attachment_->client(); ++client) {
    rank += waiting.test(client) ? 1 : 0;
  }
  const std::size_t sharers = std::max<std::size_t>(waiting.count(), 1);
  ClientSet share;
  std::size_t number = 0;
  for (std::uint32_t client = 0; client < clients_max; ++client) {
    if (known.test(client)) {
      share.set(client, number++ % sharers == rank % sharers);
    }
  }
  // Where one is dead there may be more, who take no part in the asking.
  if (!reap_those(share, granted)) {
    return false;
  }
  reap(granted);
  return true;
}

bool Node::reap_those(const ClientSet& clients, ClientSet& granted) {
  ClientSet holders;
  for (const ReservationRecord& record : books_.reservations) {
    holders.set(record.client);
  }
  ClientSet dead;
  for (std::uint32_t client = 0; client < clients_max; ++client) {
    dead.set(client,
             clients.test(client) && holders.test(client) && !attachment_->group_lives(client));
  }
  const auto is_dead = [&](const ReservationRecord& record) { return dead.test(record.client); };
  const bool removed = std::erase_if(books_.reservations, is_dead) != 0;
  if (!removed && !forget_dead_wishes(clients)) {
    return false;
  }
  // Nobody is served before all have been asked after.
  if (!removed && clients.all()) {
    serve_living(granted);
  } else {
    serve_all(granted);
  }
  return true;
}

// Where nobody waits there is nobody to serve, and no need to read the clock.
void Node::serve_device(std::uint32_t device, ClientSet& granted) {
  if (std::ranges::any_of(books_.reservations, &ReservationRecord::waits)) {
    serve_device_at(monotonic_ns(), device, granted);
  }
}

void Node::serve_device_at(std::int64_t now_ns, std::uint32_t device, ClientSet& granted) {
  if (forget_dead_wishes(ClientSet().set())) {
    serve_living(granted);
  } else {
    serve(books_, device, now_ns, granted);
  }
}

void Node::serve_all(ClientSet& granted) {
  forget_dead_wishes(ClientSet().set());
  serve_living(granted);
}

// Once the wishes of the dead are forgotten.
void Node::serve_living(ClientSet& granted) {
  const std::int64_t now_ns = monotonic_ns();
  for (std::uint32_t index = 0; index < books_.devices.size(); ++index) {
    serve(books_, index, now_ns, granted);
  }
}

Node::Holding* Node::holding(std::uint64_t handle) {
  const auto at = std::ranges::find(holdings_, handle, &Holding::handle);
  return at != holdings_.end() ? &*at : nullptr;
}

// The books' record of a handle; null for a handle that is not, or no longer, ours.
ReservationRecord* Node::record_of(std::uint64_t handle) {
  const Holding* held = holding(handle);
  return held != nullptr ? books_.find(held->record.id) : nullptr;
}

Node::Device Node::device(std::uint32_t index) {
  refuse_fork();
  const std::scoped_lock turn(mutex_);
  if (index >= devices_.size()) {
    refuse_device(index);
  }
  return devices_[index];
}

void Node::refuse_device(std::uint32_t index) {
  throw_invalid("use node", "there is no device " + std::to_string(index));
}

}  // namespace hippogriff::node
