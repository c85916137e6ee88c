// The policies against a slow oracle written from the equations, and the bound of aging_mmu.
#include "node/policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace hippogriff::node {
namespace {

constexpr std::uint64_t capacity = 100;
constexpr std::int64_t far_future = std::int64_t{1} << 60;

Books books_with(Policy policy, std::uint32_t device_count = 1) {
  Books books;
  books.policy = policy;
  books.bound.wait_ns_max = far_future;
  for (std::uint32_t index = 0; index < device_count; ++index) {
    DeviceRecord device;
    device.name[0] = static_cast<char>('a' + index);
    device.capacity_bytes = capacity;
    books.devices.push_back(device);
  }
  return books;
}

std::uint64_t ask(Books& books, std::uint64_t size, std::int32_t priority = 0) {
  ReservationRecord record;
  record.wanted_bytes = size;
  record.priority = priority;
  return books.append(record);
}

std::vector<bool> granted_after_serving(Books& books) {
  ClientSet granted;
  serve(books, 0, 0, granted);
  std::vector<bool> result;
  for (const ReservationRecord& record : books.reservations) {
    result.push_back(!record.waits());
  }
  return result;
}

TEST(Policy, fifo_stops_at_the_first_that_does_not_fit) {
  Books books = books_with(Policy::fifo);
  for (const std::uint64_t size : std::vector<std::uint64_t>{40, 70, 10}) {
    ask(books, size);
  }
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, false, false}));
}

TEST(Policy, mmu_takes_all_that_fit) {
  Books books = books_with(Policy::mmu);
  for (const std::uint64_t size : std::vector<std::uint64_t>{40, 70, 10, 60, 50}) {
    ask(books, size);
  }
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, false, true, false, true}));
}

TEST(Policy, priority_fifo_stops_within_the_highest_class) {
  Books books = books_with(Policy::priority_fifo);
  ask(books, 10, 1);
  ask(books, 40, 2);
  ask(books, 70, 2);
  ask(books, 10, 2);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true, false, false}));
}

TEST(Policy, priority_mmu_leaves_lower_classes_until_the_highest_is_served) {
  Books books = books_with(Policy::priority_mmu);
  ask(books, 10, 1);
  ask(books, 40, 2);
  const std::uint64_t large = ask(books, 70, 2);
  ask(books, 10, 2);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true, false, true}));
  books.erase(large);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, true, true}));
}

TEST(Policy, growth_stands_before_all_that_hold_nothing) {
  for (std::uint32_t policy = 0; policy < policy_count; ++policy) {
    Books books = books_with(static_cast<Policy>(policy));
    const std::uint64_t holder = ask(books, 60);
    static_cast<void>(granted_after_serving(books));
    ask(books, 60);
    books.find(holder)->wanted_bytes = 100;
    EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, false})) << policy;
  }
}

TEST(Policy, memory_used_outside_is_not_given) {
  Books books = books_with(Policy::mmu);
  books.devices[0].outside_bytes = 50;
  ask(books, 51);
  ask(books, 50);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true}));
  books.devices[0].outside_bytes = capacity_bytes_max;
  ask(books, 1);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true, false}));
}

TEST(Policy, aging_lets_nobody_pass_after_the_longest_wait) {
  Books books = books_with(Policy::aging_mmu);
  books.bound = {.grants_max = 1000, .wait_ns_max = 50};
  ask(books, 60);
  ask(books, 60);
  ask(books, 10);
  ClientSet granted;
  serve(books, 0, 49, granted);
  EXPECT_FALSE(books.reservations[2].waits());
  ask(books, 10);
  serve(books, 0, 50, granted);
  EXPECT_TRUE(books.reservations[3].waits());
}

// Of another clock: one that begins in the future would be overtaken until that comes.
TEST(Policy, aging_counts_from_when_a_wait_of_the_future_is_first_seen) {
  Books books = books_with(Policy::aging_mmu);
  books.bound = {.grants_max = 1000, .wait_ns_max = 50};
  ask(books, 60);
  books.find(ask(books, 60))->since_ns = INT64_MAX;
  ask(books, 10);
  ClientSet granted;
  serve(books, 0, 100, granted);
  EXPECT_FALSE(books.reservations[2].waits());
  EXPECT_EQ(books.reservations[1].since_ns, 100);
  ask(books, 10);
  serve(books, 0, 149, granted);
  EXPECT_FALSE(books.reservations[3].waits());
  ask(books, 10);
  serve(books, 0, 150, granted);
  EXPECT_TRUE(books.reservations[4].waits());
}

// The oracle: clients in plain structs, the equations by recursion, sums by counting.
struct OracleClient {
  std::uint64_t id = 0;
  std::uint64_t memory = 0;
  std::int32_t priority = 0;
  std::uint32_t overtaken = 0;
  bool waiting = true;
};

struct Oracle {
  Policy policy = Policy::fifo;
  std::uint32_t overtakes_max = 0;
  std::vector<OracleClient> clients;  // in order of arrival

  [[nodiscard]] std::uint64_t free() const {
    std::uint64_t left = capacity;
    for (const OracleClient& client : clients) {
      left -= client.waiting ? 0 : client.memory;
    }
    return left;
  }

  // C, or C^p: who waits, of the class of the highest waiting priority where there are classes.
  std::vector<OracleClient*> queue() {
    std::vector<OracleClient*> waiting;
    for (OracleClient& client : clients) {
      if (client.waiting) {
        waiting.push_back(&client);
      }
    }
    if (policy == Policy::priority_fifo || policy == Policy::priority_mmu) {
      std::int32_t highest = INT32_MIN;
      for (const OracleClient* client : waiting) {
        highest = std::max(highest, client->priority);
      }
      std::erase_if(waiting, [&](const OracleClient* c) { return c->priority != highest; });
    }
    return waiting;
  }

  // Equations 6.1 and 6.3.
  void preallocate_first(const std::vector<OracleClient*>& queue, std::size_t i) {
    if (i < queue.size() && queue[i]->memory <= free()) {
      queue[i]->waiting = false;
      preallocate_first(queue, i + 1);
    }
  }

  // Equations 6.2 and 6.4.
  void preallocate_any(const std::vector<OracleClient*>& queue, std::size_t i) {
    if (i == queue.size()) {
      return;
    }
    const bool exhausted =
        std::any_of(queue.begin(), queue.begin() + static_cast<long>(i), [&](auto* c) {
          return policy == Policy::aging_mmu && c->waiting && c->overtaken >= overtakes_max;
        });
    if (!exhausted && queue[i]->memory <= free()) {
      queue[i]->waiting = false;
      for (std::size_t older = 0; older < i; ++older) {
        queue[older]->overtaken += queue[older]->waiting ? 1 : 0;
      }
    }
    preallocate_any(queue, i + 1);
  }

  void serve_all() {
    for (;;) {
      const std::vector<OracleClient*> now = queue();
      if (policy == Policy::fifo || policy == Policy::priority_fifo) {
        preallocate_first(now, 0);
      } else {
        preallocate_any(now, 0);
      }
      const bool class_served = std::ranges::none_of(now, &OracleClient::waiting);
      if (now.empty() || !class_served) {
        return;
      }
    }
  }
};

void expect_same(const Books& books, const Oracle& oracle, std::uint64_t seed) {
  ASSERT_EQ(books.reservations.size(), oracle.clients.size());
  for (std::size_t at = 0; at < oracle.clients.size(); ++at) {
    const ReservationRecord& record = books.reservations[at];
    const OracleClient& client = oracle.clients[at];
    ASSERT_EQ(record.id, client.id) << "seed " << seed;
    ASSERT_EQ(record.waits(), client.waiting) << "seed " << seed << " id " << record.id;
    ASSERT_LE(record.overtaken, oracle.policy == Policy::aging_mmu ? oracle.overtakes_max : 0);
  }
  ASSERT_EQ(books.free_bytes(0), oracle.free()) << "seed " << seed;
  ASSERT_TRUE(books.valid());
}

void compare_with_oracle(Policy policy, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Books books = books_with(policy);
  books.bound.grants_max = static_cast<std::uint32_t>(random() % 5);
  Oracle oracle{.policy = policy, .overtakes_max = books.bound.grants_max, .clients = {}};
  const std::uint64_t largest = 1 + random() % capacity;
  for (int turn = 0; turn < 200; ++turn) {
    if (random() % 2 == 0 || oracle.clients.empty()) {
      const std::uint64_t size = 1 + random() % largest;
      const auto priority = static_cast<std::int32_t>(random() % 3);
      oracle.clients.push_back(
          {.id = ask(books, size, priority), .memory = size, .priority = priority});
    } else {
      const std::size_t at = random() % oracle.clients.size();
      books.erase(oracle.clients[at].id);
      oracle.clients.erase(oracle.clients.begin() + static_cast<long>(at));
    }
    ClientSet granted;
    serve(books, 0, turn, granted);
    oracle.serve_all();
    ASSERT_NO_FATAL_FAILURE(expect_same(books, oracle, seed));
  }
}

class EveryPolicy : public ::testing::TestWithParam<std::uint32_t> {};

TEST_P(EveryPolicy, does_as_the_oracle_under_random_requests) {
  const std::uint64_t first = std::random_device{}();
  std::cout << "seeds from " << first << '\n';
  for (std::uint64_t seed = first; seed < first + 300; ++seed) {
    ASSERT_NO_FATAL_FAILURE(compare_with_oracle(static_cast<Policy>(GetParam()), seed));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EveryPolicy, ::testing::Range(0U, policy_count));

// Time passes; each reservation is held for at most `hold`; small ones keep coming.
TEST(Policy, aging_keeps_its_bound_in_time) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  constexpr std::int64_t hold = 20;
  constexpr std::int64_t aged = 50;
  Books books = books_with(Policy::aging_mmu);
  books.bound = {.grants_max = 1'000'000, .wait_ns_max = aged};
  std::map<std::uint64_t, std::int64_t> ends;
  std::map<std::uint64_t, std::int64_t> latest;  // id -> when it has to be served
  std::size_t late_possible = 0;
  for (std::int64_t now = 0; now < 20'000; ++now) {
    for (auto at = ends.begin(); at != ends.end();) {
      if (at->second <= now) {
        books.erase(at->first);
        at = ends.erase(at);
      } else {
        ++at;
      }
    }
    if (random() % 3 == 0) {
      const auto older = std::ranges::count_if(books.reservations, &ReservationRecord::waits);
      const std::uint64_t id = ask(books, random() % 40 == 0 ? capacity : 1 + random() % 30);
      books.find(id)->since_ns = now;
      latest[id] = now + aged + (older + 1) * hold;
    }
    ClientSet granted;
    serve(books, 0, now, granted);
    for (const ReservationRecord& record : books.reservations) {
      if (!record.waits() && !ends.contains(record.id)) {
        ends[record.id] = now + 1 + static_cast<std::int64_t>(random() % hold);
        ASSERT_LE(now, latest.at(record.id));
        late_possible += now - record.since_ns > aged ? 1U : 0U;
      }
    }
  }
  EXPECT_GT(late_possible, 0U) << "no request came near its bound";
}

TEST(Books, growth_that_can_never_end_is_found) {
  Books books = books_with(Policy::mmu);
  const std::uint64_t first = ask(books, 50);
  const std::uint64_t second = ask(books, 40);
  static_cast<void>(granted_after_serving(books));
  books.find(first)->wanted_bytes = 80;
  EXPECT_FALSE(books.growth_is_stuck(first));
  books.find(second)->wanted_bytes = 51;
  EXPECT_TRUE(books.growth_is_stuck(second));
  books.find(second)->wanted_bytes = 50;
  EXPECT_FALSE(books.growth_is_stuck(second)) << "that much is free";
}

// Of books in which each reservation is a command's, the command's number being its client.
bool can_grow_by_trying(Books books, const ReservationRecord& asked) {
  if (asked.missing_bytes() <= books.free_bytes(asked.device)) {
    return true;
  }
  const auto is_of = [](std::uint32_t one) {
    return [one](const ReservationRecord& record) { return record.client == one; };
  };
  for (std::uint32_t other = 0; other < 4; ++other) {
    const bool fits = std::ranges::all_of(books.reservations, [&](const ReservationRecord& record) {
      return record.client != other || !record.grows() ||
             record.missing_bytes() <= books.free_bytes(record.device);
    });
    if (!fits || std::ranges::none_of(books.reservations, is_of(other))) {
      continue;
    }
    Books later = books;
    std::erase_if(later.reservations, is_of(other));
    if (other == asked.client || can_grow_by_trying(later, asked)) {
      return true;
    }
  }
  return false;
}

Books random_growth_on_three_devices(std::mt19937_64& random) {
  Books books = books_with(Policy::mmu, 3);
  for (std::uint32_t device = 0; device < 3; ++device) {
    for (std::uint32_t client = 0; client < 4; ++client) {
      ReservationRecord& record = *books.find(ask(books, 1 + random() % 25));
      record.device = device;
      record.client = client;
      record.grant();
      if (random() % 3 == 0) {
        record.wanted_bytes += random() % (capacity - record.size_bytes);
        record.grower = client + 1;
      }
    }
  }
  return books;
}

// That waits for one that does not wait: whatever else its command waits for, and what a command
// that has not asked yet keeps.
TEST(Books, growth_that_others_may_make_room_for_is_not_stuck) {
  Books books = books_with(Policy::mmu, 2);
  const std::uint64_t asked = ask(books, 40);
  const std::uint64_t beside = ask(books, 40);
  const std::uint64_t other = ask(books, 60);
  for (ReservationRecord& record : books.reservations) {
    record.grant();
  }
  books.find(other)->client = 1;
  ReservationRecord& grows = *books.find(asked);
  grows.wanted_bytes = 60;
  grows.grower = 3;
  ReservationRecord& stands = *books.find(beside);
  stands.device = 1;
  stands.wanted_bytes = 70;
  stands.grower = 4;
  books.devices[1].outside_bytes = 40;
  EXPECT_FALSE(books.growth_is_stuck(asked));
  EXPECT_TRUE(books.growth_is_stuck(beside)) << "what is used outside is not waited for";
  books.devices[1].outside_bytes = 0;
  ReservationRecord left;
  left.client = 2;
  left.wanted_bytes = 50;
  left.deferred = 1;
  left.kept_bytes = 50;
  const std::uint64_t not_asked_yet = books.append(left);
  EXPECT_FALSE(books.growth_is_stuck(asked));
  books.find(not_asked_yet)->deferred = 0;
  EXPECT_TRUE(books.growth_is_stuck(asked)) << "it waits as well";
}

// A command that has the one device claims the other; who has the other grows on the first.
TEST(Books, growth_in_a_circle_with_a_claim_is_stuck) {
  Books books = books_with(Policy::mmu, 2);
  const std::uint64_t has = ask(books, 60);
  const std::uint64_t others = ask(books, 60);
  const std::uint64_t grows = ask(books, 30);
  for (ReservationRecord& record : books.reservations) {
    record.grant();
  }
  books.find(has)->client = 1;
  books.find(others)->device = 1;
  ReservationRecord claim;
  claim.client = 1;
  claim.device = 1;
  claim.wanted_bytes = 50;
  claim.grower = 2;
  const std::uint64_t claims = books.append(claim);
  books.find(others)->grower = 0;
  books.find(grows)->wanted_bytes = 50;
  books.find(grows)->grower = 1;
  EXPECT_TRUE(books.growth_is_stuck(grows));
  books.erase(claims);
  EXPECT_FALSE(books.growth_is_stuck(grows));
}

TEST(Books, growth_over_devices_is_stuck_where_no_order_of_ends_lets_it_go_on) {
  std::mt19937_64 random(7);
  int stuck = 0;
  constexpr int rounds = 2000;
  for (int round = 0; round < rounds; ++round) {
    const Books books = random_growth_on_three_devices(random);
    for (const ReservationRecord& record : books.reservations) {
      const bool is_stuck = books.growth_is_stuck(record.id);
      ASSERT_EQ(is_stuck, !can_grow_by_trying(books, record)) << "round " << round;
      stuck += is_stuck ? 1 : 0;
    }
  }
  EXPECT_GT(stuck, rounds / 10);
  EXPECT_LT(stuck, rounds * 10);
}

// One of whose size so much is kept for contexts.
std::uint64_t ask_keeping(Books& books, std::uint64_t size, std::uint64_t kept) {
  const std::uint64_t id = ask(books, size);
  books.reservations.back().kept_bytes = kept;
  return id;
}

std::uint64_t leave(Books& books, std::uint64_t size, std::uint64_t kept) {
  const std::uint64_t id = ask_keeping(books, size, kept);
  books.reservations.back().deferred = 1;
  return id;
}

TEST(Policy, who_keeps_what_another_needs_is_let_past_it) {
  for (std::uint32_t policy = 0; policy < policy_count; ++policy) {
    Books books = books_with(static_cast<Policy>(policy));
    books.bound = {.grants_max = 0, .wait_ns_max = 0};
    ask(books, 95, 1);
    const std::uint64_t barring = ask_keeping(books, 50, 10);
    EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true})) << policy;
    books.erase(barring);
    EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true})) << policy;
  }
}

TEST(Policy, nobody_is_let_past_one_that_waits_for_what_will_be_given_back) {
  Books books = books_with(Policy::fifo);
  const std::uint64_t holder = ask(books, 20);
  static_cast<void>(granted_after_serving(books));
  ask(books, 85);
  ask_keeping(books, 50, 10);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, false, false}));
  books.erase(holder);
  books.devices[0].outside_bytes = 20;
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, false}));
  EXPECT_EQ(to_refuse(books, 0, 0), 0U);
  books.devices[0].outside_bytes = 0;
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{true, false}));
}

TEST(Policy, the_largest_of_those_that_bar_each_other_is_refused) {
  Books books = books_with(Policy::fifo);
  ask(books, 100);  // bars nobody
  const std::uint64_t left = leave(books, 10, 5);
  const std::uint64_t first = ask_keeping(books, 95, 10);
  const std::uint64_t second = ask_keeping(books, 95, 10);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(to_refuse(books, 0, 0), second) << "the last of equals";
  books.find(first)->wanted_bytes = 96;
  EXPECT_EQ(to_refuse(books, 0, 0), first);
  books.find(first)->deferred = 1;
  EXPECT_EQ(to_refuse(books, 0, 0), 0U) << "that one may end";
  books.erase(first);
  EXPECT_EQ(to_refuse(books, 0, 0), 0U) << "and the one that was left";
  EXPECT_TRUE(books.find(second)->waits());
  books.erase(left);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, true}));
}

TEST(Policy, growth_that_contexts_of_those_behind_it_bar_is_refused) {
  Books books = books_with(Policy::fifo);
  const std::uint64_t grower = ask(books, 50);
  const std::uint64_t holder = ask(books, 20);
  static_cast<void>(granted_after_serving(books));
  books.find(grower)->wanted_bytes = 92;
  books.find(grower)->ticket = books.next_number++;
  ask_keeping(books, 60, 10);
  EXPECT_EQ(to_refuse(books, 0, 0), 0U) << "another holds memory";
  books.erase(holder);
  EXPECT_EQ(granted_after_serving(books), (std::vector<bool>{false, false}));
  EXPECT_EQ(to_refuse(books, 0, 0), grower);
}

void ask_at_random(Books& books, std::mt19937_64& random) {
  const std::uint64_t size = random() % 3 == 0 ? 80 + random() % 21 : 1 + random() % 100;
  const std::uint64_t kept = random() % 2 * std::min<std::uint64_t>(size, 1 + random() % 15);
  ask_keeping(books, size, kept);
  books.reservations.back().priority = static_cast<std::int32_t>(random() % 2);
  books.reservations.back().deferred = random() % 3 == 0 ? 1 : 0;
}

// One that is refused ends, else one that does not wait: what was left may ask instead. False when
// all wait.
bool go_on(Books& books, std::mt19937_64& random) {
  if (const std::uint64_t refused = to_refuse(books, 0, 0); refused != 0) {
    books.erase(refused);
    return true;
  }
  std::vector<ReservationRecord*> others;
  for (ReservationRecord& record : books.reservations) {
    if (!record.waits()) {
      others.push_back(&record);
    }
  }
  if (others.empty()) {
    return false;
  }
  ReservationRecord& one = *others[random() % others.size()];
  if (one.deferred != 0 && random() % 2 == 0) {
    one.deferred = 0;
    one.ticket = books.next_number++;
  } else {
    books.erase(one.id);
  }
  return true;
}

TEST(Policy, nobody_waits_for_ever_for_what_contexts_keep) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  for (std::uint32_t run = 0; run < 2000; ++run) {
    Books books = books_with(static_cast<Policy>(run % policy_count));
    books.bound = {.grants_max = static_cast<std::uint32_t>(random() % 3), .wait_ns_max = 1};
    for (int count = 0; count < 6; ++count) {
      ask_at_random(books, random);
    }
    while (!books.reservations.empty()) {
      static_cast<void>(granted_after_serving(books));
      ASSERT_LE(books.held_bytes(0) + books.kept_bytes(0), capacity) << "run " << run;
      ASSERT_TRUE(go_on(books, random)) << "all wait, and nobody is refused; run " << run;
    }
  }
}

}  // namespace
}  // namespace hippogriff::node
