// Threads that keep more lines than the cache has places for.
#include "testing/array_fixture.hpp"
#include "testing/eventually.hpp"
#include "testing/failure_of.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <random>
#include <vector>

namespace hippogriff::ondemand {

namespace {

// Without the spare place each of these waits would last until the limit, and end the array.
constexpr std::chrono::milliseconds beyond_any_test{600'000};

constexpr int thread_count = 12;

// Threads own elements side by side, so they share lines but no element. How many were wrong.
int use_three_cursors(const array_view<std::uint32_t>& view,
                      std::vector<std::uint32_t>& oracle,
                      int thread,
                      std::uint32_t seed) {
  std::mt19937 random(seed + static_cast<std::uint32_t>(thread));
  array_cursor<std::uint32_t> first(view);
  array_cursor<std::uint32_t> second(view);
  array_cursor<std::uint32_t> third(view);
  const std::array<array_cursor<std::uint32_t>*, 3> cursors{&first, &second, &third};
  int wrong = 0;
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t index =
        random() % (view.size() / thread_count) * thread_count + static_cast<std::uint32_t>(thread);
    array_cursor<std::uint32_t>& cursor = *cursors.at(random() % 3);
    if (random() % 2 == 0) {
      oracle[index] = static_cast<std::uint32_t>(random());
      const NvmeStatus status =
          random() % 4 == 0 ? view.write(index, oracle[index]) : cursor.write(index, oracle[index]);
      wrong += status == NvmeStatus::success ? 0 : 1;
    }
    wrong += cursor[index] == oracle[index] && view[index] == oracle[index] ? 0 : 1;
  }
  return wrong;
}

}  // namespace

TEST(HeldPlaces, cursors_of_one_thread_get_on_in_a_cache_of_one_line) {
  for (const bool staged : {false, true}) {
    for (const bool in_memory : {false, true}) {
      TestArray array({.cache_bytes = 512,
                       .in_memory = in_memory,
                       .staged = staged,
                       .wait_limit = beyond_any_test});
      const auto view = array.view<std::uint32_t>();
      std::vector<std::uint32_t> expected = elements_of<std::uint32_t>(array.stored());
      array_cursor<std::uint32_t> first(view);
      array_cursor<std::uint32_t> second(view);
      array_cursor<std::uint32_t> third(view);
      for (std::uint64_t i = 0; i < 20; ++i) {
        const std::uint64_t there = (i / 4 * 128) % view.size();
        const std::uint64_t else_where = (i * 997 + 3000) % view.size();
        EXPECT_EQ(first[there], expected[there]);
        expected[else_where] = 7 * static_cast<std::uint32_t>(i) + 1;
        EXPECT_EQ(second.write(else_where, expected[else_where]), NvmeStatus::success);
        EXPECT_EQ(third[else_where], expected[else_where]);
      }
      first.let_go();
      second.let_go();
      third.let_go();
      array.array().flush();
      EXPECT_EQ(elements_of<std::uint32_t>(array.stored()), expected);
    }
  }
}

TEST(HeldPlaces, other_accesses_of_a_thread_with_a_cursor_get_on) {
  TestArray array({.cache_bytes = 512, .wait_limit = beyond_any_test});
  const auto view = array.view<std::uint32_t>();
  std::vector<std::uint32_t> expected = elements_of<std::uint32_t>(array.stored());
  array_cursor<std::uint32_t> cursor(view);
  expected[5] = 17;
  ASSERT_EQ(cursor.write(5, 17), NvmeStatus::success);
  EXPECT_EQ(view[1000], expected[1000]);
  std::array<std::uint32_t, 300> some{};
  ASSERT_EQ(view.read_range(Alone{}, 900, some.size(), some.data()), NvmeStatus::success);
  EXPECT_EQ(some.front(), expected[900]);
  EXPECT_EQ(some.back(), expected[1199]);
  for (std::uint32_t i = 0; i < some.size(); ++i) {  // one line of these as a whole
    some[i] = i;
    expected[900 + i] = i;
  }
  const std::uint64_t reads = array.array().served().reads;
  ASSERT_EQ(view.write_range(Alone{}, 900, some.size(), some.data()), NvmeStatus::success);
  EXPECT_EQ(array.array().served().reads - reads, 2U) << "a whole line is not read";
  EXPECT_EQ(cursor[5], 17U);
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[1000], 100U) << "written past the cache";
  cursor.let_go();
  array.array().flush();
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored()), expected);
}

// Each thread keeps a line of each array while it wants one of the other's.
// More would be more references than a place can count.
TEST(HeldPlaces, cursors_beyond_two_to_the_nineteenth_of_one_line_do_without_it) {
  TestArray array({.size_bytes = 8 << 10,
                   .cache_bytes = 4 << 10,
                   .wait_limit = std::chrono::milliseconds(2000)});
  const auto view = array.view<std::uint32_t>();
  const auto before = elements_of<std::uint32_t>(array.stored());
  std::deque<array_cursor<std::uint32_t>> cursors;
  for (std::uint64_t i = 0; i < kept_most; ++i) {
    ASSERT_EQ(cursors.emplace_back(view)[1], before[1]);
  }
  for (std::uint32_t i = 2; i < 100; ++i) {
    array_cursor<std::uint32_t> further(view);
    ASSERT_EQ(further[i], before[i]);
    ASSERT_EQ(further.write(i, i), NvmeStatus::success);
    ASSERT_EQ(further[i], i);
    ASSERT_EQ(cursors[i][i], i) << "it is one line for all";
    ASSERT_EQ(view[i], i);
    ASSERT_EQ(further[1000], before[1000]) << "others are kept";
  }
  array.array().check();
  const auto asked = [&](array_cursor<std::uint32_t>& cursor) {
    const std::uint64_t first = array.array().counts().accesses;
    EXPECT_EQ(cursor[3], 3U);
    EXPECT_EQ(cursor[4], 4U);
    return array.array().counts().accesses - first;
  };
  array_cursor<std::uint32_t> last(view);
  EXPECT_GE(asked(last), 2U);
  cursors.pop_front();
  EXPECT_EQ(asked(last), 1U) << "it keeps the line as soon as another has let go";
  last.let_go();
  cursors.clear();
  array.array().flush();
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[99], 99U);
}

TEST(HeldPlaces, cursors_over_two_arrays_do_not_wait_for_each_other) {
  TestArray one({.cache_bytes = 512, .wait_limit = beyond_any_test});
  TestArray other({.cache_bytes = 512, .wait_limit = beyond_any_test});
  const auto one_view = one.view<std::uint32_t>();
  const auto other_view = other.view<std::uint32_t>();
  on_threads(8, [&](int thread) {
    array_cursor<std::uint32_t> in_one(one_view);
    array_cursor<std::uint32_t> in_other(other_view);
    for (std::uint32_t i = 0; i < 20; ++i) {
      const std::uint64_t index = 2000 * (i % 2) + (i * 8) + static_cast<std::uint32_t>(thread);
      ASSERT_EQ(in_one.write(index, i + 1), NvmeStatus::success);
      ASSERT_EQ(in_other.write(index, i + 2), NvmeStatus::success);
      ASSERT_EQ(in_one[index], i + 1);
      ASSERT_EQ(in_other[index], i + 2);
    }
  });
  one.array().flush();
  other.array().flush();
  EXPECT_EQ(elements_of<std::uint32_t>(one.stored())[2152], 20U);
  EXPECT_EQ(elements_of<std::uint32_t>(other.stored())[2152], 21U);
}

TEST(HeldPlaces, many_threads_with_more_cursors_than_places_lose_nothing) {
  constexpr std::uint32_t seed = 20261126;
  for (const std::uint64_t lines : {1U, 3U, 16U}) {
    TestArray array({.size_bytes = std::uint64_t{24} << 10,
                     .cache_bytes = lines * 512,
                     .queue_depth = 4,
                     .counter_base = UINT64_MAX - 50,
                     .wait_limit = beyond_any_test});
    const auto view = array.view<std::uint32_t>();
    std::vector<std::uint32_t> oracle = elements_of<std::uint32_t>(array.stored());
    std::atomic<int> wrong{0};
    on_threads(thread_count,
               [&](int thread) { wrong += use_three_cursors(view, oracle, thread, seed); });
    EXPECT_EQ(wrong.load(), 0) << "seed " << seed << ", lines " << lines;
    array.array().flush();
    EXPECT_EQ(elements_of<std::uint32_t>(array.stored()), oracle) << "lines " << lines;
  }
}

TEST(HeldPlaces, what_fails_beside_a_cursor_is_told_and_the_array_goes_on) {
  TestArray array({.cache_bytes = 512, .wait_limit = beyond_any_test});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> before = elements_of<std::uint32_t>(array.stored());
  array_cursor<std::uint32_t> cursor(view);
  EXPECT_EQ(cursor[0], before[0]);
  std::uint32_t value = 0;
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  EXPECT_EQ(view.read(1000, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(view.read(1000, value), NvmeStatus::success);
  EXPECT_EQ(value, before[1000]);
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 1,
                    .errno_value = ENOSPC});
  EXPECT_EQ(view.write(1000, 3), NvmeStatus::write_fault);
  EXPECT_EQ(view[1000], before[1000]) << "nor is it in the cache";
  EXPECT_EQ(view.write(1000, 4), NvmeStatus::success);
  EXPECT_EQ(view[1000], 4U);
  EXPECT_EQ(cursor[1], before[1]);
  EXPECT_NE(failure_of([&] { array.array().check(); }).errno_value, 0);
  array.array().clear_failure();
  array.array().check();
  cursor.let_go();
  array.array().flush();
}

// Sets share the spare place: who could not load into it must not give it back twice.
TEST(HeldPlaces, a_flush_writes_and_keeps_what_is_let_go_while_it_waits_for_another_line) {
  TestArray array({.wait_limit = std::chrono::milliseconds(400)});
  const auto view = array.view<std::uint8_t>();
  const auto& places = array.array().cache().places;
  for (const std::uint64_t line : {0U, 9U, 20U}) {
    ASSERT_EQ(view.write(line * usual_line_bytes, 1), NvmeStatus::success);
  }
  // The flush waits for the one whose place is first.
  const bool zero_first = places.place_with(0) < places.place_with(9);
  const std::uint64_t kept = zero_first ? 0 : 9;
  const std::uint64_t let_go = zero_first ? 9 : 0;
  array_cursor<std::uint8_t> first(view);
  ASSERT_EQ(first.write(kept * usual_line_bytes, 2), NvmeStatus::success);
  array_cursor<std::uint8_t> second(view);
  ASSERT_EQ(second.write(let_go * usual_line_bytes, 2), NvmeStatus::success);
  std::thread letting_go([&] {
    while (array.array().served().writes == 0) {  // the flush has looked at all lines
      std::this_thread::yield();
    }
    second.let_go();
  });
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).status, Status::timed_out);
  letting_go.join();
  EXPECT_EQ(array.stored()[let_go * usual_line_bytes], std::byte{2});
  EXPECT_EQ(array.plan().seen(FaultPoint::sync), 1U);
  first.let_go();
  array.array().flush();
  EXPECT_EQ(array.stored()[kept * usual_line_bytes], std::byte{2});
}

TEST(HeldPlaces, a_flush_gets_its_turn_at_a_line_that_many_threads_write_all_the_time) {
  constexpr int writers = 16;
  TestArray array({.wait_limit = std::chrono::seconds(20)});
  const auto view = array.view<std::uint32_t>();
  std::atomic<std::uint32_t> round{1};  // 0: stop
  std::array<std::atomic<std::uint32_t>, writers> written{};
  std::thread writing([&] {
    on_threads(writers, [&](int thread) {
      const auto own = static_cast<std::size_t>(thread);
      for (std::uint32_t now = round; now != 0; now = round) {
        EXPECT_EQ(view.write(own, now), NvmeStatus::success);
        written.at(own) = now;
      }
    });
  });
  for (const std::uint32_t now : {1U, 2U, 3U}) {
    round = now;
    EXPECT_TRUE(testing::eventually(
        [&] { return std::ranges::all_of(written, [&](const auto& is) { return is == now; }); }));
    EXPECT_NO_THROW(array.array().flush());
    const std::vector<std::uint32_t> stored = elements_of<std::uint32_t>(array.stored());
    EXPECT_EQ(std::count(stored.begin(), stored.begin() + writers, now), writers);
  }
  round = 0;
  writing.join();
}

TEST(HeldPlaces, a_flush_gets_its_turn_at_a_line_that_somebody_always_holds) {
  TestArray array({.wait_limit = std::chrono::seconds(5)});
  const auto view = array.view<std::uint32_t>();
  const auto& places = array.array().cache().places;
  ASSERT_EQ(view.write(5, 42), NvmeStatus::success);
  std::atomic<bool> stop{false};
  std::atomic<int> holds{0};
  on_threads(5, [&](int thread) {
    if (thread == 4) {
      while (holds < 8) {
        std::this_thread::yield();
      }
      EXPECT_NO_THROW(array.array().flush());
      stop = true;
    }
    while (!stop) {
      std::uint32_t place = 0;
      if (places.try_hold(0, place)) {
        ++holds;
        std::this_thread::sleep_for(std::chrono::microseconds(300 + 100 * thread));
        places.drop(place, false);
      }
    }
  });
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[5], 42U);
}

TEST(HeldPlaces, a_line_is_used_while_a_flush_waits_for_who_keeps_it) {
  TestArray array({.wait_limit = std::chrono::seconds(20)});
  const auto view = array.view<std::uint32_t>();
  array_cursor<std::uint32_t> cursor(view);
  ASSERT_EQ(cursor.write(5, 42), NvmeStatus::success);
  std::thread flusher([&] { array.array().flush(); });
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint32_t i = 0;
       std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(200);
       ++i) {
    EXPECT_EQ(view.write(6, i), NvmeStatus::success);
    EXPECT_EQ(cursor.write(7, i), NvmeStatus::success);
    array_cursor<std::uint32_t> other(view);
    EXPECT_EQ(other[6], i);
    EXPECT_EQ(view[7], i);
  }
  EXPECT_EQ(cursor.write(7, 1), NvmeStatus::success);
  cursor.let_go();
  flusher.join();
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[5], 42U);
  EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[7], 1U);
}

TEST(HeldPlaces, reads_of_many_threads_that_fail_beside_cursors_give_nothing_wrong) {
  TestArray array({.size_bytes = std::uint64_t{1} << 20,
                   .cache_bytes = std::uint64_t{64} * 512,
                   .wait_limit = std::chrono::seconds(20)});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> before = elements_of<std::uint32_t>(array.stored());
  std::deque<array_cursor<std::uint32_t>> cursors;
  for (std::uint64_t line = 0; line < 400; ++line) {
    cursors.emplace_back(view);
    ASSERT_EQ(cursors.back()[line * 128], before[line * 128]);
  }
  std::filesystem::resize_file(array.path(), std::uint64_t{1} << 19);
  std::atomic<int> wrong{0};
  std::atomic<int> failed{0};
  on_threads(32, [&](int thread) {
    std::mt19937 random(static_cast<std::uint32_t>(thread));
    for (int i = 0; i < 300; ++i) {
      const std::uint64_t index = random() % before.size();
      std::uint32_t value = 0;
      const NvmeStatus status = view.read(index, value);
      const bool beyond = index >= before.size() / 2;
      const bool right = status == NvmeStatus::success ? value == before[index]
                                                       : beyond && status != NvmeStatus::aborted;
      wrong += right ? 0 : 1;
      failed += status == NvmeStatus::success ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(failed.load(), 0);
}

TEST(HeldPlaces, an_array_that_has_ended_says_so_also_when_it_is_cleared) {
  TestArray array({.wait_limit = std::chrono::milliseconds(50)});
  const auto view = array.view<std::uint32_t>();
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::uint32_t value = 0;
  EXPECT_EQ(view.read(0, value), NvmeStatus::aborted);
  array.plan().release();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::timed_out);
    EXPECT_EQ(failure_of([&] { array.array().clear_failure(); }).status, Status::timed_out);
    EXPECT_EQ(view.read(2000, value), NvmeStatus::aborted);
  }
}

}  // namespace hippogriff::ondemand
