// The five policies as one walk over the queue that differs in order and in what stops it.
#include "node/policy.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace hippogriff::node {

namespace {

using Queue = std::vector<ReservationRecord*>;

bool by_ticket(const ReservationRecord* left, const ReservationRecord* right) {
  return left->ticket < right->ticket;
}

bool by_priority(const ReservationRecord* left, const ReservationRecord* right) {
  return left->priority != right->priority ? left->priority > right->priority
                                           : left->ticket < right->ticket;
}

bool grant_if_fits(ReservationRecord& record, std::uint64_t& free, ClientSet& granted) {
  if (record.missing_bytes() > free) {
    return false;
  }
  free -= record.missing_bytes();
  record.grant();
  granted.set(record.client);
  return true;
}

void serve_fifo(const Queue& queue, std::uint64_t free, ClientSet& granted) {
  for (ReservationRecord* record : queue) {
    if (!grant_if_fits(*record, free, granted)) {
      return;
    }
  }
}

void serve_mmu(const Queue& queue, std::uint64_t free, ClientSet& granted) {
  for (ReservationRecord* record : queue) {
    static_cast<void>(grant_if_fits(*record, free, granted));
  }
}

void serve_priority_mmu(const Queue& queue, std::uint64_t free, ClientSet& granted) {
  const ReservationRecord* left_waiting = nullptr;
  for (ReservationRecord* record : queue) {
    if (left_waiting != nullptr && left_waiting->priority != record->priority) {
      return;
    }
    if (!grant_if_fits(*record, free, granted)) {
      left_waiting = record;
    }
  }
}

// `passed_over` begins with the growth that did not fit.
void serve_aging(const Queue& queue,
                 Queue passed_over,
                 std::uint64_t free,
                 const OvertakeBound& bound,
                 std::int64_t now_ns,
                 ClientSet& granted) {
  for (ReservationRecord* record : queue) {
    const bool may_not_overtake = std::ranges::any_of(passed_over, [&](const auto* other) {
      return by_ticket(other, record) && (other->overtaken >= bound.grants_max ||
                                          other->since_ns <= now_ns - bound.wait_ns_max);
    });
    if (may_not_overtake) {
      return;
    }
    if (!grant_if_fits(*record, free, granted)) {
      passed_over.push_back(record);
      continue;
    }
    for (ReservationRecord* other : passed_over) {
      other->overtaken += by_ticket(other, record) ? 1 : 0;
    }
  }
}

// Whose turn it may be: of all who wait, or of those alone who bar others and are not barred.
enum class Among { all, barring };

void serve_among(
    Among among, Books& books, std::uint32_t device, std::int64_t now_ns, ClientSet& granted) {
  Queue growing;
  Queue queue;
  const std::uint64_t capacity = books.devices[device].capacity_bytes;
  const std::uint64_t kept = among == Among::barring ? books.kept_bytes(device) : 0;
  const std::uint64_t attainable = capacity - std::min(capacity, kept);
  for (ReservationRecord& record : books.reservations) {
    const bool takes_part =
        among == Among::all || (record.kept_bytes != 0 && record.missing_bytes() <= attainable);
    if (record.device == device && record.waits() && takes_part) {
      (record.grows() ? growing : queue).push_back(&record);
    }
  }
  if (growing.empty() && queue.empty()) {
    return;
  }
  std::uint64_t free = books.free_bytes(device);
  std::ranges::sort(growing, by_ticket);
  std::erase_if(growing,
                [&](ReservationRecord* record) { return grant_if_fits(*record, free, granted); });
  const Policy policy = books.policy;
  if (!growing.empty() && policy != Policy::mmu && policy != Policy::aging_mmu) {
    return;
  }
  const bool priorities = policy == Policy::priority_fifo || policy == Policy::priority_mmu;
  std::ranges::sort(queue, priorities ? by_priority : by_ticket);
  switch (policy) {
    case Policy::fifo:
    case Policy::priority_fifo:
      return serve_fifo(queue, free, granted);
    case Policy::mmu:
      return serve_mmu(queue, free, granted);
    case Policy::priority_mmu:
      return serve_priority_mmu(queue, free, granted);
    case Policy::aging_mmu:
      return serve_aging(queue, std::move(growing), free, books.bound, now_ns, granted);
  }
}

}  // namespace

void serve(Books& books, std::uint32_t device, std::int64_t now_ns, ClientSet& granted) {
  // Others wrote when they began to wait. Of a time to come nobody would see it get old.
  for (ReservationRecord& record : books.reservations) {
    record.since_ns = std::min(record.since_ns, now_ns);
  }
  serve_among(Among::all, books, device, now_ns, granted);
  const auto bars = [&](const ReservationRecord& record) {
    return record.device == device && record.is_new() && record.kept_bytes != 0;
  };
  if (std::ranges::none_of(books.reservations, bars) || books.held_bytes(device) != 0) {
    return;
  }
  Books later = books;
  later.devices[device].outside_bytes = 0;
  ClientSet nobody;
  serve_among(Among::all, later, device, now_ns, nobody);
  if (nobody.none()) {
    serve_among(Among::barring, books, device, now_ns, granted);
  }
}

std::uint64_t to_refuse(const Books& books, std::uint32_t device, std::int64_t now_ns) {
  Books later = books;
  std::erase_if(later.reservations, [&](const ReservationRecord& record) {
    return record.device == device && record.deferred != 0;
  });
  later.devices[device].outside_bytes = 0;
  std::uint64_t last_grower = 0;
  std::uint64_t last_ticket = 0;
  const ReservationRecord* largest = nullptr;
  for (const ReservationRecord& record : later.reservations) {
    if (record.device != device) {
      continue;
    }
    if (!record.waits()) {
      return 0;  // it will end
    }
    if (record.grows() && record.ticket >= last_ticket) {
      last_grower = record.id;
      last_ticket = record.ticket;
    }
    if (record.is_new() && record.kept_bytes != 0 &&
        (largest == nullptr || std::pair(record.wanted_bytes, record.ticket) >
                                   std::pair(largest->wanted_bytes, largest->ticket))) {
      largest = &record;
    }
  }
  const std::uint64_t largest_id = largest != nullptr ? largest->id : 0;
  const std::uint64_t refused = last_grower != 0 ? last_grower : largest_id;
  ClientSet granted;
  serve(later, device, now_ns, granted);
  return granted.none() ? refused : 0;
}

}  // namespace hippogriff::node
