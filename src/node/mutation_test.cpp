// The segment is overwritten at random while processes use it: no crash, no hang, and when that is
// over the books are right again.
#include "base/error.hpp"
#include "node/layout.hpp"
#include "node/node.hpp"
#include "node/segment.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::held;
using hippogriff::testing::long_wait;
using hippogriff::testing::no_wait;
using hippogriff::testing::status_of;
using hippogriff::testing::TemporarySegment;
using hippogriff::testing::waiting;
using std::chrono::milliseconds;

// Holds 10 all the time and more now and then; ends well when it could always go on, else
// says where not, and with which status.
int work(const NodeOptions& options, std::uint64_t seed, std::chrono::seconds time) {
  std::mt19937_64 random(seed);
  std::unique_ptr<Node> joined;
  std::uint32_t device = 0;
  std::uint64_t base = 0;
  const auto retried = [&](auto call) {
    for (int turn = 0; turn < 200; ++turn) {
      const Status status = status_of(call);
      if (status != Status::busy) {
        return status;
      }
    }
    return Status::busy;
  };
  if (retried([&] { joined = std::make_unique<Node>(options); }) != Status::ok) {
    return 2;
  }
  Node& node = *joined;
  if (const Status status = retried([&] { device = node.add_device("gpu", 1000); });
      status != Status::ok) {
    return 10 + static_cast<int>(status);
  }
  if (const Status status =
          retried([&] { base = node.reserve({.device = device, .size_bytes = 10}); });
      status != Status::ok) {
    return 40 + static_cast<int>(status);
  }
  const auto array = node.notice_array();
  array->show({.device = 1, .size_bytes = 1000, .cache_bytes = 100, .line_bytes = 10});
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    const auto notice = node.notice_transfer();
    notice->show({.device = 1, .drive = "vda", .bytes_total = random() % 1000});
    static_cast<void>(node.transfers_of_others());
    array->count({.accesses = random(), .misses = random(), .in_flight = random()});
    static_cast<void>(status_of([&] { static_cast<void>(node.view()); }));
    std::uint64_t handle = 0;
    const Status status = status_of([&] {
      handle = node.reserve({.device = device,
                             .size_bytes = 1 + random() % 300,
                             .timeout = milliseconds(random() % 20)});
    });
    if (status == Status::ok && retried([&] { node.release(handle); }) != Status::ok) {
      return 4;
    }
    if (status != Status::ok && status != Status::busy && status != Status::timed_out) {
      return 5;
    }
  }
  return retried([&] { node.shrink(base, 5); }) == Status::ok &&
                 retried([&] { node.release(base); }) == Status::ok
             ? 0
             : 6;
}

std::size_t random_offset(std::mt19937_64& random) {
  const std::array<std::size_t, 12> regions = {
      0,
      offsetof(SegmentLayout, lock),
      offsetof(SegmentLayout, commit),
      offsetof(SegmentLayout, signals),
      offsetof(SegmentLayout, identities),
      offsetof(SegmentLayout, halves),
      offsetof(SegmentLayout, halves) + half_bytes,
      offsetof(SegmentLayout, boards),
      offsetof(SegmentLayout, boards) + offsetof(ClientBoard, transfers),
      offsetof(SegmentLayout, boards) + offsetof(ClientBoard, arrays),
      offsetof(SegmentLayout, showing),
      offsetof(SegmentLayout, showing_arrays),
  };
  const std::size_t spread = random() % 2 == 0 ? 8 : 2048;
  return regions.at(random() % regions.size()) + random() % spread;
}

// Writes through the path, as a stray program would: to whatever segment stands there.
void mutate(const std::string& path, std::mt19937_64& random) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  std::array<std::uint8_t, 64> bytes{};
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(random());
  }
  const std::size_t size = 1 + random() % (random() % 4 == 0 ? bytes.size() : 4);
  static_cast<void>(::pwrite(fd, bytes.data(), size, static_cast<off_t>(random_offset(random))));
  ::close(fd);
}

TEST(Mutation, of_the_segment_under_running_clients_ends_in_right_books) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  NodeOptions options = place.options();
  options.lock_timeout = milliseconds(100);
  std::vector<Child> children;
  for (std::uint64_t index = 0; index < 4; ++index) {
    children.emplace_back([&] { return work(options, seed + index, std::chrono::seconds(3)); });
  }
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t mutations = 0;
  while (std::chrono::steady_clock::now() - start < milliseconds(2500)) {
    mutate(place.path(), random);
    ++mutations;
    if (random() % 500 == 0) {
      static_cast<void>(::unlink(place.path().c_str()));
    }
    ::usleep(static_cast<useconds_t>(random() % 400));
  }
  for (Child& child : children) {
    EXPECT_EQ(child.wait(), 0);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  Node ours(options);
  const std::uint32_t device = ours.add_device("gpu", 1000);
  ours.release(
      ours.reserve({.device = device, .size_bytes = 1000, .timeout = milliseconds(20'000)}));
  EXPECT_TRUE(ours.view().reservations.empty());
  std::cout << mutations << " mutations\n";
}

enum class Damage { newest, both };

// Overwrites images of the books.
void damage(const TemporarySegment& place, Damage which) {
  const Segment segment(SegmentPlace::parse(place.path()), Books{}, Steps{});
  const std::uint64_t newest = segment.shared().commit.load();
  segment.shared().halves.at(newest % 2).fill(std::byte{0});
  if (which == Damage::both) {
    segment.shared().halves.at((newest + 1) % 2).fill(std::byte{0});
  }
}

// A leader that looks only when all is over.
TEST(Mutation, what_was_left_for_its_first_use_is_left_or_claimed_after_a_repair_as_before) {
  for (const Damage which : {Damage::newest, Damage::both}) {
    const TemporarySegment place;
    Node leading(place.options());
    const std::uint32_t device = leading.add_device("gpu", 100);
    leading.defer({.device = device, .size_bytes = 60});
    NodeOptions options = place.options();
    options.leader = Leader::parse(leading.leader());
    Node member(options);
    member.add_device("gpu", 100);

    damage(place, which);
    EXPECT_EQ(held(leading), 0U);
    EXPECT_EQ(leading.view().reservations.at(0).record.deferred, 1U);

    member.claim_deferred(device, no_wait);
    ASSERT_TRUE(member.take(device, 60));
    damage(place, which);
    EXPECT_EQ(held(leading), 60U);
    EXPECT_EQ(leading.view().reservations.at(0).record.deferred, 0U);

    member.give(device, 60);
    member.grow_group(device, 80, no_wait);
    damage(place, which);
    EXPECT_EQ(held(leading), 80U);
    EXPECT_EQ(leading.view().reservations.at(0).record.wanted_bytes, 80U);
  }
}

TEST(Mutation, growth_that_waits_goes_on_waiting_after_a_repair) {
  for (const Damage which : {Damage::newest, Damage::both}) {
    const TemporarySegment place;
    Node holder(place.options());
    const std::uint64_t rest =
        holder.reserve({.device = holder.add_device("gpu", 100), .size_bytes = 40});
    Node growing(place.options());
    const std::uint64_t mine =
        growing.reserve({.device = growing.add_device("gpu", 100), .size_bytes = 50});
    std::thread grows([&] { growing.grow(mine, 80, long_wait); });
    EXPECT_TRUE(eventually([&] { return waiting(holder) == 1; }));
    damage(place, which);
    EXPECT_TRUE(eventually([&] { return waiting(holder) == 1 && held(holder) == 90; }));
    holder.release(rest);
    grows.join();
    EXPECT_EQ(held(holder), 80U);
  }
}

}  // namespace
}  // namespace hippogriff::node
