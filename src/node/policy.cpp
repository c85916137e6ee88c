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

}  // namespace

void serve(Books& books, std::uint32_t device, std::int64_t now_ns, ClientSet& granted) {
  Queue growing;
  Queue queue;
  for (ReservationRecord& record : books.reservations) {
    if (record.device == device && record.waits()) {
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

}  // namespace hippogriff::node
