// Transfers on the boards: what one client shows, the others see, however its process ends.
#include "node/transfers.hpp"

#include "node/attachment.hpp"
#include "node/node.hpp"
#include "testing/bytes.hpp"
#include "testing/node_segment.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

ShownTransfer example_transfer(std::uint64_t bytes_total = 64 * mebibyte) {
  return {.device = device_key("GPU-1"),
          .drive = "nvme0n1",
          .sends = true,
          .route = 3,
          .phase = TransferPhase::moving,
          .wants_memory = false,
          .drive_requests = 7,
          .channels = 5,
          .bytes_total = bytes_total,
          .bytes_done = 0,
          .started_ns = monotonic_ns()};
}

TEST(Transfers, what_one_client_shows_the_others_see_until_it_ends) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node other(place.options());
  EXPECT_TRUE(other.transfers_of_others().empty());
  const auto notice = mine.notice_transfer();
  ASSERT_NE(notice, nullptr);
  EXPECT_TRUE(other.transfers_of_others().empty()) << "nothing was shown yet";
  notice->show(example_transfer());
  notice->set_done(3 * mebibyte);
  EXPECT_TRUE(mine.transfers_of_others().empty()) << "it is its own";
  const auto seen = other.transfers_of_others();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].pid, static_cast<std::uint64_t>(::getpid()));
  EXPECT_EQ(seen[0].shown.device, device_key("GPU-1"));
  EXPECT_EQ(seen[0].shown.drive, "nvme0n1");
  EXPECT_TRUE(seen[0].shown.sends);
  EXPECT_EQ(seen[0].shown.route, 3);
  EXPECT_EQ(seen[0].shown.drive_requests, 7);
  EXPECT_EQ(seen[0].shown.channels, 5);
  EXPECT_EQ(seen[0].shown.bytes_total, 64 * mebibyte);
  EXPECT_EQ(seen[0].shown.bytes_done, 3 * mebibyte);
  notice->end();
  EXPECT_TRUE(other.transfers_of_others().empty());
}

TEST(Transfers, phases_change_and_leave_the_rest_as_it_is) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node other(place.options());
  const auto notice = mine.notice_transfer();
  ShownTransfer shown = example_transfer();
  shown.phase = TransferPhase::parking;
  shown.wants_memory = true;
  notice->show(shown);
  EXPECT_EQ(other.transfers_of_others().at(0).shown.phase, TransferPhase::parking);
  EXPECT_TRUE(other.transfers_of_others().at(0).shown.wants_memory);
  notice->set_phase(TransferPhase::moving, false);
  const ShownTransfer seen = other.transfers_of_others().at(0).shown;
  EXPECT_EQ(seen.phase, TransferPhase::moving);
  EXPECT_FALSE(seen.wants_memory);
  EXPECT_EQ(seen.route, 3);
  EXPECT_EQ(seen.drive_requests, 7);
  EXPECT_EQ(seen.channels, 5);
}

TEST(Transfers, beyond_those_that_have_a_record_are_counted) {
  const TemporarySegment place;
  Node mine(place.options());
  const Node other(place.options());
  std::vector<std::unique_ptr<TransferNotice>> notices;
  for (std::size_t index = 0; index < transfers_shown_max + 3; ++index) {
    notices.push_back(mine.notice_transfer());
    notices.back()->show(example_transfer());
  }
  EXPECT_EQ(other.transfers_of_others().size(), transfers_shown_max);
  EXPECT_EQ(mine.view().transfers.size(), transfers_shown_max) << "a view has all, also one's own";
  const auto clients = mine.view().clients;
  EXPECT_TRUE(std::ranges::any_of(
      clients, [](const auto& client) { return client.unshown_transfers == 3; }));
  notices.clear();
  EXPECT_TRUE(mine.view().transfers.empty());
  for (const auto& client : mine.view().clients) {
    EXPECT_EQ(client.unshown_transfers, 0U);
  }
}

TEST(Transfers, long_names_of_drives_are_cut) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node other(place.options());
  const auto notice = mine.notice_transfer();
  ShownTransfer shown = example_transfer();
  shown.drive = "fuse.a-file-system-of-many-letters";
  notice->show(shown);
  EXPECT_EQ(other.transfers_of_others().at(0).shown.drive, shown.drive.substr(0, drive_name_max));
}

// Shows more and more transfers, over and over, until it is killed.
int show_transfers_for_ever(const NodeOptions& options) {
  const Node theirs(options);
  std::vector<std::unique_ptr<TransferNotice>> notices;
  for (std::uint64_t turn = 1;; ++turn) {
    notices.push_back(theirs.notice_transfer());
    notices.back()->show(example_transfer(turn * mebibyte));
    if (notices.size() > transfers_shown_max + 2) {
      notices.clear();
    }
  }
  return 0;
}

TEST(Transfers, of_a_killed_process_are_gone_and_its_slot_can_be_used_again) {
  const TemporarySegment place;
  const Node other(place.options());
  for (int round = 0; round < 3; ++round) {
    Child child([&] { return show_transfers_for_ever(place.options()); });
    EXPECT_TRUE(eventually([&] { return !other.transfers_of_others().empty(); }));
    child.send(SIGKILL);
    EXPECT_EQ(child.wait(), -SIGKILL);
    EXPECT_TRUE(eventually([&] { return other.transfers_of_others().empty(); }));
    const Node next(place.options());
    EXPECT_TRUE(other.transfers_of_others().empty()) << "who takes the slot over wipes it";
    const auto notice = next.notice_transfer();
    notice->show(example_transfer());
    EXPECT_EQ(other.transfers_of_others().size(), 1U);
  }
}

TEST(Transfers, a_forked_child_changes_nothing_of_its_parents) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node other(place.options());
  auto notice = mine.notice_transfer();
  notice->show(example_transfer());
  EXPECT_EQ(Child([&] {
              notice->set_done(mebibyte);
              notice->set_phase(TransferPhase::waiting, true);
              notice->end();
              notice.reset();
              return mine.notice_transfer() == nullptr && mine.transfers_of_others().empty() ? 0
                                                                                             : 1;
            }).wait(),
            0);
  const auto seen = other.transfers_of_others();
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].shown.bytes_done, 0U);
  EXPECT_EQ(seen[0].shown.phase, TransferPhase::moving);
}

// A record is seen whole: its fields, written together, agree.
TEST(Transfers, that_come_and_go_in_many_threads_are_seen_whole) {
  const TemporarySegment place;
  const Node mine(place.options());
  const Node other(place.options());
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (std::uint16_t number = 1; number <= 4; ++number) {
    writers.emplace_back([&, number] {
      for (std::uint64_t turn = 1; !stop; ++turn) {
        const auto notice = mine.notice_transfer();
        ShownTransfer shown = example_transfer(turn * number);
        shown.device = turn * number;
        shown.drive_requests = static_cast<std::uint16_t>(turn * number);
        notice->show(shown);
        notice->set_done(turn);
      }
    });
  }
  std::uint64_t looks = 0;
  std::uint64_t found = 0;
  while (found < 2000 && looks < 2'000'000) {
    ++looks;
    for (const SeenTransfer& seen : other.transfers_of_others()) {
      ++found;
      ASSERT_EQ(seen.shown.device, seen.shown.bytes_total);
      ASSERT_EQ(seen.shown.drive_requests, static_cast<std::uint16_t>(seen.shown.device));
      ASSERT_LE(seen.shown.bytes_done, seen.shown.bytes_total);
    }
  }
  stop = true;
  for (std::thread& writer : writers) {
    writer.join();
  }
  EXPECT_GT(found, 0U);
  EXPECT_TRUE(other.transfers_of_others().empty());
}

void check_bounds(const SeenTransfer& seen) {
  EXPECT_LT(seen.client, clients_max);
  EXPECT_LE(static_cast<int>(seen.shown.phase), static_cast<int>(TransferPhase::waiting));
  EXPECT_LE(seen.shown.bytes_done, seen.shown.bytes_total);
  EXPECT_GE(seen.shown.started_ns, 0);
  EXPECT_LE(seen.shown.started_ns, monotonic_ns());
  EXPECT_LE(seen.shown.drive.size(), drive_name_max);
  for (const char letter : seen.shown.drive) {
    EXPECT_TRUE(letter > ' ' && letter <= '~');
  }
}

TEST(Transfers, of_garbage_are_within_bounds) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const TemporarySegment place;
  Node mine(place.options());
  const Node other(place.options());
  const int fd = ::open(place.path().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (int round = 0; round < 2000; ++round) {
    std::array<std::uint64_t, 64> words{};
    std::ranges::generate(words, [&] { return random() >> random() % 64; });
    const bool bits = random() % 4 == 0;
    const std::size_t at =
        bits ? offsetof(SegmentLayout, showing)
             : offsetof(SegmentLayout, boards) + random() % (3 * sizeof(ClientBoard)) / 8 * 8;
    const std::size_t size = bits ? sizeof(SegmentLayout::showing) : sizeof(words);
    ASSERT_EQ(::pwrite(fd, words.data(), size, static_cast<off_t>(at)), static_cast<ssize_t>(size));
    for (const SeenTransfer& seen : other.transfers_of_others()) {
      check_bounds(seen);
    }
    const auto notice = mine.notice_transfer();
    notice->show(example_transfer());
    for (const SeenTransfer& seen : mine.view().transfers) {
      check_bounds(seen);
    }
  }
  ::close(fd);
  EXPECT_FALSE(::testing::Test::HasFailure());
}

}  // namespace
}  // namespace hippogriff::node
