// What a process takes of a drive, by what others show; also by what nobody can have shown.
#include "array/drive_share.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace hippogriff::ondemand {
namespace {

using node::SeenArray;

constexpr std::int64_t ms = 1'000'000;

TEST(DriveShare, of_a_drive_that_nobody_else_uses_is_all) {
  EXPECT_EQ(drive_share({.others = {}, .answers_per_second = 10, .least_ns = 1}), drive_share_max);
}

TEST(DriveShare, is_what_the_least_of_the_others_wants_where_the_drive_is_busy) {
  EXPECT_EQ(drive_share({.others = {64}}), 64U) << "no speed is known: as busy as can be";
  EXPECT_EQ(drive_share({.others = {300, 64, 100}}), 64U);
  EXPECT_EQ(drive_share({.others = {64}, .answers_per_second = 90e3, .least_ns = 60'000}), 64U);
}

TEST(DriveShare, is_never_less_than_a_few) {
  EXPECT_EQ(drive_share({.others = {1}}), drive_share_min);
  EXPECT_EQ(drive_share({.others = {1, 64}, .answers_per_second = 1, .least_ns = 60'000}),
            drive_share_min);
}

// A million a second of 80 us: 160 requests take 160 us each.
TEST(DriveShare, is_what_others_leave_of_a_drive_that_can_take_more) {
  EXPECT_EQ(drive_share({.others = {4}, .answers_per_second = 1e6, .least_ns = 80'000}), 156U);
  EXPECT_EQ(drive_share({.others = {4, 4}, .answers_per_second = 1e6, .least_ns = 80'000}), 152U);
  EXPECT_EQ(drive_share({.others = {4, 900}, .answers_per_second = 1e6, .least_ns = 80'000}), 78U)
      << "one who wants much has as much as we";
}

TEST(DriveShare, is_within_its_bounds_whatever_is_said) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> speeds = {
      0, 1e6, -1e9, 1e300, infinity, -infinity, std::numeric_limits<double>::quiet_NaN()};
  for (int round = 0; round < 10'000; ++round) {
    DriveCrowd crowd{.others = std::vector<std::uint64_t>(random() % 5),
                     .answers_per_second = speeds[random() % speeds.size()],
                     .least_ns = random() >> random() % 64};
    std::ranges::generate(crowd.others, [&] { return random() >> random() % 64; });
    const std::uint64_t share = drive_share(crowd);
    ASSERT_GE(share, drive_share_min);
    ASSERT_LE(share, drive_share_max);
  }
}

struct Said {
  std::uint32_t client = 1;
  std::uint64_t in_flight = 16;
  std::uint64_t answers = 0;
  std::int64_t counted_ns = 0;
  std::uint64_t line_bytes = 4096;
  std::string drive = "vda";
  std::uint64_t least_ns = 0;
  std::uint32_t record = 0;
};

SeenArray seen(const Said& said) {
  return {.client = said.client,
          .pid = 1,
          .record = said.record,
          .shown = {.drive = said.drive, .line_bytes = said.line_bytes},
          .counts = {.in_flight = said.in_flight,
                     .drive_answers = said.answers,
                     .drive_least_ns = said.least_ns},
          .opened_ns = 1,
          .counted_ns = said.counted_ns};
}

DriveCrowd look(OthersAtDrive& others, const std::vector<Said>& said, std::int64_t now_ns) {
  std::vector<SeenArray> arrays;
  std::ranges::transform(said, std::back_inserter(arrays), seen);
  return others.look(arrays, "vda", 4096, now_ns);
}

TEST(OthersAtDrive, count_while_the_drive_answers_them) {
  OthersAtDrive others;
  EXPECT_TRUE(look(others, {{.answers = 50, .counted_ns = 100 * ms}}, 100 * ms).others.empty())
      << "it may have been long ago";
  const DriveCrowd busy =
      look(others, {{.answers = 150, .counted_ns = 200 * ms, .least_ns = 70'000}}, 210 * ms);
  EXPECT_EQ(busy.others, std::vector<std::uint64_t>{16});
  EXPECT_NEAR(busy.answers_per_second, 1000, 1e-6);
  EXPECT_EQ(busy.least_ns, 70'000U);
  const Said idle{.in_flight = 0, .answers = 150, .counted_ns = 500 * ms};
  EXPECT_EQ(look(others, {idle}, 450 * ms).others.size(), 1U) << "a short pause";
  EXPECT_TRUE(look(others, {idle}, 510 * ms).others.empty());
}

TEST(OthersAtDrive, who_died_or_is_stuck_counts_no_more) {
  OthersAtDrive others;
  const Said last{.answers = 150, .counted_ns = 200 * ms};
  static_cast<void>(look(others, {{.answers = 50, .counted_ns = 100 * ms}}, 100 * ms));
  EXPECT_EQ(look(others, {last}, 200 * ms).others.size(), 1U);
  EXPECT_EQ(look(others, {last}, 400 * ms).others.size(), 1U);
  EXPECT_TRUE(look(others, {last}, 501 * ms).others.empty()) << "it counts nothing any more";
  EXPECT_TRUE(look(others, {}, 502 * ms).others.empty());
}

TEST(OthersAtDrive, at_other_drives_or_at_none_are_nothing_to_us) {
  OthersAtDrive others;
  for (std::int64_t turn = 1; turn <= 3; ++turn) {
    const auto answers = static_cast<std::uint64_t>(100 * turn);
    const DriveCrowd crowd =
        look(others,
             {{.answers = answers, .counted_ns = turn * 100 * ms, .drive = "vdb"},
              {.client = 2, .answers = answers, .counted_ns = turn * 100 * ms, .drive = ""}},
             turn * 100 * ms);
    EXPECT_TRUE(crowd.others.empty());
    EXPECT_EQ(crowd.answers_per_second, 0);
  }
}

TEST(OthersAtDrive, are_processes_with_all_their_arrays_in_our_requests) {
  OthersAtDrive others;
  const auto said = [](std::uint64_t answers, std::int64_t counted_ns) {
    return std::vector<Said>{
        {.in_flight = 8, .answers = answers, .counted_ns = counted_ns, .line_bytes = 16384},
        {.in_flight = 6, .answers = answers, .counted_ns = counted_ns, .record = 1},
        {.client = 2, .answers = answers, .counted_ns = counted_ns, .line_bytes = 512}};
  };
  static_cast<void>(look(others, said(0, 100 * ms), 100 * ms));
  EXPECT_EQ(look(others, said(10, 200 * ms), 200 * ms).others,
            (std::vector<std::uint64_t>{8 * 4 + 6, 2}));
}

TEST(OthersAtDrive, want_as_much_as_lately_for_counts_are_of_a_moment) {
  OthersAtDrive others;
  static_cast<void>(look(others, {{.in_flight = 64, .counted_ns = 100 * ms}}, 100 * ms));
  EXPECT_EQ(look(others, {{.in_flight = 0, .answers = 9, .counted_ns = 200 * ms}}, 200 * ms).others,
            std::vector<std::uint64_t>{48});
}

TEST(OthersAtDrive, say_what_they_like) {
  const std::uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << '\n';
  std::mt19937_64 random(seed);
  OthersAtDrive others;
  std::size_t counted = 0;
  for (std::int64_t round = 1; round < 10'000; ++round) {
    const std::int64_t now_ns = round * 100 * ms;
    std::vector<Said> said(random() % 4);
    for (Said& each : said) {
      each.client = static_cast<std::uint32_t>(random() % 3);
      each.record = static_cast<std::uint32_t>(random() % 2);
      each.in_flight = std::min(random() >> random() % 64, node::shown_number_max);
      each.answers = std::min(random() >> random() % 64, node::shown_number_max);
      each.counted_ns = now_ns - static_cast<std::int64_t>(random() % 4) * 100 * ms;
      each.line_bytes = std::min(random() >> random() % 64, node::shown_number_max);
      each.least_ns = random() >> random() % 64;
    }
    const DriveCrowd crowd = look(others, said, now_ns);
    counted += crowd.others.size();
    ASSERT_TRUE(std::ranges::all_of(
        crowd.others, [](std::uint64_t wants) { return wants >= 1 && wants <= drive_share_max; }));
    ASSERT_GE(crowd.answers_per_second, 0);
    const std::uint64_t share = drive_share(crowd);
    ASSERT_GE(share, drive_share_min);
    ASSERT_LE(share, drive_share_max);
  }
  EXPECT_GT(counted, 1000U);
}

}  // namespace
}  // namespace hippogriff::ondemand
