// Arrays on the boards: what one client shows, the others see, however its process ends.
#include "node/arrays.hpp"

#include "node/attachment.hpp"
#include "node/node.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff::node {
namespace {

using hippogriff::testing::Child;
using hippogriff::testing::eventually;
using hippogriff::testing::TemporarySegment;

constexpr std::uint64_t gibibyte = 1 << 30;

ShownArray example(std::uint64_t size_bytes = 64 * gibibyte) {
  return {.device = device_key("GPU-1"),
          .drive = "nvme0n1",
          .size_bytes = size_bytes,
          .cache_bytes = gibibyte,
          .line_bytes = 4096};
}

// All of them tell the turn.
ArrayCounts counts_of(std::uint64_t turn) {
  return {.accesses = turn,
          .misses = turn,
          .overwritten = turn,
          .written_back = turn,
          .read_bytes = turn,
          .written_bytes = turn,
          .in_flight = turn,
          .drive_answers = turn,
          .drive_least_ns = turn,
          .drive_limit = turn};
}

TEST(Arrays, what_one_client_shows_the_others_see_until_it_ends) {
  const TemporarySegment place;
  const Node mine(place.options());
  Node other(place.options());
  const auto notice = mine.notice_array();
  ASSERT_NE(notice, nullptr);
  EXPECT_TRUE(other.view().arrays.empty()) << "nothing was shown yet";
  notice->show(example());
  const SeenArray fresh = other.view().arrays.at(0);
  EXPECT_EQ(fresh.pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(fresh.shown.device, device_key("GPU-1"));
  EXPECT_EQ(fresh.shown.drive, "nvme0n1");
  EXPECT_EQ(fresh.shown.size_bytes, 64 * gibibyte);
  EXPECT_EQ(fresh.shown.cache_bytes, gibibyte);
  EXPECT_EQ(fresh.shown.line_bytes, 4096U);
  EXPECT_EQ(fresh.counts.misses, 0U);
  EXPECT_EQ(fresh.counted_ns, fresh.opened_ns);
  notice->count({.accesses = 1,
                 .misses = 2,
                 .overwritten = 3,
                 .written_back = 4,
                 .read_bytes = 5,
                 .written_bytes = 6,
                 .in_flight = 7,
                 .drive_answers = 8,
                 .drive_least_ns = 9,
                 .drive_limit = 10});
  const SeenArray later = other.view().arrays.at(0);
  EXPECT_EQ(later.opened_ns, fresh.opened_ns);
  EXPECT_GT(later.counted_ns, fresh.counted_ns);
  EXPECT_EQ(later.counts.accesses, 1U);
  EXPECT_EQ(later.counts.misses, 2U);
  EXPECT_EQ(later.counts.overwritten, 3U);
  EXPECT_EQ(later.counts.written_back, 4U);
  EXPECT_EQ(later.counts.read_bytes, 5U);
  EXPECT_EQ(later.counts.written_bytes, 6U);
  EXPECT_EQ(later.counts.in_flight, 7U);
  EXPECT_EQ(later.counts.drive_answers, 8U);
  EXPECT_EQ(later.counts.drive_least_ns, 9U);
  EXPECT_EQ(later.counts.drive_limit, 10U);
  notice->end();
  EXPECT_TRUE(other.view().arrays.empty());
}

TEST(Arrays, beyond_those_that_have_a_record_are_counted) {
  const TemporarySegment place;
  Node mine(place.options());
  std::vector<std::unique_ptr<ArrayNotice>> notices;
  for (std::size_t index = 0; index < arrays_shown_max + 3; ++index) {
    notices.push_back(mine.notice_array());
    notices.back()->show(example(index));
    notices.back()->count(counts_of(index));
  }
  const NodeView view = mine.view();
  ASSERT_EQ(view.arrays.size(), arrays_shown_max) << "a view has also one's own";
  for (std::uint32_t index = 0; index < arrays_shown_max; ++index) {
    EXPECT_EQ(view.arrays[index].record, index);
    EXPECT_EQ(view.arrays[index].shown.size_bytes, index);
  }
  EXPECT_TRUE(std::ranges::any_of(view.clients,
                                  [](const auto& client) { return client.unshown_arrays == 3; }));
  notices.clear();
  EXPECT_TRUE(mine.view().arrays.empty());
  for (const auto& client : mine.view().clients) {
    EXPECT_EQ(client.unshown_arrays, 0U);
  }
}

TEST(Arrays, of_others_are_seen_by_ones_own_notices) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node theirs(place.options());
  const auto own = mine.notice_array();
  const auto other = theirs.notice_array();
  own->show(example(1));
  EXPECT_TRUE(own->others().empty());
  other->show(example(2));
  ASSERT_EQ(own->others().size(), 1U);
  EXPECT_EQ(own->others()[0].shown.size_bytes, 2U);
  EXPECT_EQ(Child([&] { return own->others().empty() ? 0 : 1; }).wait(), 0) << "a forked child";
}

TEST(Arrays, show_nothing_among_transfers_and_the_other_way_round) {
  const TemporarySegment place;
  Node mine(place.options());
  const auto array = mine.notice_array();
  array->show(example());
  auto transfer = mine.notice_transfer();
  transfer->show({.device = 1, .drive = "vda", .bytes_total = 1});
  EXPECT_EQ(mine.view().arrays.size(), 1U);
  EXPECT_EQ(mine.view().transfers.size(), 1U);
  transfer.reset();
  EXPECT_EQ(mine.view().arrays.size(), 1U);
  EXPECT_TRUE(mine.view().transfers.empty());
}

// Shows more and more arrays, over and over, until it is killed.
int show_for_ever(const NodeOptions& options) {
  const Node theirs(options);
  std::vector<std::unique_ptr<ArrayNotice>> notices;
  for (std::uint64_t turn = 1;; ++turn) {
    notices.push_back(theirs.notice_array());
    notices.back()->show(example(turn));
    notices.back()->count(counts_of(turn));
    if (notices.size() > arrays_shown_max + 2) {
      notices.clear();
    }
  }
  return 0;
}

TEST(Arrays, of_a_killed_process_are_gone_and_its_slot_can_be_used_again) {
  const TemporarySegment place;
  Node other(place.options());
  for (int round = 0; round < 3; ++round) {
    Child child([&] { return show_for_ever(place.options()); });
    EXPECT_TRUE(eventually([&] { return !other.view().arrays.empty(); }));
    child.send(SIGKILL);
    EXPECT_EQ(child.wait(), -SIGKILL);
    EXPECT_TRUE(other.view().arrays.empty());
    const Node next(place.options());
    EXPECT_TRUE(other.view().arrays.empty()) << "who takes the slot over wipes it";
    const auto notice = next.notice_array();
    notice->show(example());
    EXPECT_EQ(other.view().arrays.size(), 1U);
  }
}

TEST(Arrays, a_forked_child_changes_nothing_of_its_parents) {
  const TemporarySegment place;
  const Node mine(place.options());
  Node other(place.options());
  auto notice = mine.notice_array();
  notice->show(example());
  EXPECT_EQ(Child([&] {
              notice->count(counts_of(9));
              notice->end();
              notice.reset();
              return mine.notice_array() == nullptr ? 0 : 1;
            }).wait(),
            0);
  const auto seen = other.view().arrays;
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].counts.misses, 0U);
}

// A record that others use in turn is seen with the counts of the array whose it is.
TEST(Arrays, that_come_and_go_in_many_threads_are_seen_whole) {
  const TemporarySegment place;
  const Node mine(place.options());
  Node other(place.options());
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (std::uint64_t number = 1; number <= 3; ++number) {
    writers.emplace_back([&, number] {
      for (std::uint64_t turn = 1; !stop; ++turn) {
        const auto notice = mine.notice_array();
        ShownArray shown = example(turn * number);
        shown.cache_bytes = shown.size_bytes;
        notice->show(shown);
        notice->count(counts_of(turn * number));
      }
    });
  }
  std::uint64_t found = 0;
  for (int looks = 0; looks < 3000; ++looks) {
    for (const SeenArray& seen : other.view().arrays) {
      ++found;
      EXPECT_EQ(seen.shown.size_bytes, seen.shown.cache_bytes);
      EXPECT_TRUE(seen.counts.misses == 0 || seen.counts.misses == seen.shown.size_bytes);
      EXPECT_TRUE(seen.counts.in_flight == 0 || seen.counts.in_flight == seen.shown.size_bytes);
    }
  }
  stop = true;
  for (std::thread& writer : writers) {
    writer.join();
  }
  std::cout << found << " arrays seen\n";
  EXPECT_TRUE(other.view().arrays.empty());
}

void check_bounds(const NodeView& view) {
  for (const SeenArray& seen : view.arrays) {
    EXPECT_LT(seen.client, clients_max);
    EXPECT_LT(seen.record, arrays_shown_max);
    for (const std::uint64_t number : {seen.shown.size_bytes,
                                       seen.shown.cache_bytes,
                                       seen.shown.line_bytes,
                                       seen.counts.accesses,
                                       seen.counts.misses,
                                       seen.counts.overwritten,
                                       seen.counts.written_back,
                                       seen.counts.read_bytes,
                                       seen.counts.written_bytes,
                                       seen.counts.in_flight,
                                       seen.counts.drive_answers,
                                       seen.counts.drive_least_ns,
                                       seen.counts.drive_limit}) {
      EXPECT_LE(number, shown_number_max);
    }
    EXPECT_LE(seen.shown.drive.size(), drive_name_max);
    EXPECT_TRUE(std::ranges::all_of(seen.shown.drive,
                                    [](char letter) { return letter > ' ' && letter <= '~'; }));
    EXPECT_GE(seen.opened_ns, 0);
    EXPECT_LE(seen.opened_ns, seen.counted_ns);
    EXPECT_LE(seen.counted_ns, monotonic_ns());
  }
  for (const auto& client : view.clients) {
    EXPECT_LE(client.unshown_arrays, 1'000'000U);
  }
}

TEST(Arrays, of_garbage_are_within_bounds) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  const Node mine(place.options());
  Node other(place.options());
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::uint64_t found = 0;
  for (int round = 0; round < 1000; ++round) {
    std::array<std::uint64_t, 64> words{};
    std::ranges::generate(words, [&] { return random() >> random() % 64; });
    const bool bits = random() % 4 == 0;
    const std::size_t at = bits ? offsetof(SegmentLayout, showing_arrays)
                                : offsetof(SegmentLayout, boards) +
                                      random() % 2 * sizeof(ClientBoard) +
                                      offsetof(ClientBoard, unshown_transfers) + random() % 64 * 8;
    const std::size_t size = bits ? sizeof(ShowingBits) : sizeof(words);
    ASSERT_EQ(::pwrite(fd, words.data(), size, static_cast<off_t>(at)), static_cast<ssize_t>(size));
    check_bounds(other.view());
    const auto notice = mine.notice_array();
    notice->show(example());
    const NodeView view = other.view();
    check_bounds(view);
    found += view.arrays.size();
    EXPECT_TRUE(std::ranges::any_of(view.arrays, [](const SeenArray& seen) {
      return seen.shown.size_bytes == example().size_bytes && seen.counts.misses == 0;
    })) << "who shows an array after that is seen";
  }
  ::close(fd);
  std::cout << found << " arrays seen\n";
}

}  // namespace
}  // namespace hippogriff::node
