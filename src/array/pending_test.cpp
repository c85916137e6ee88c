// Commands that nobody waits for: dropped, met by others, failed, aborted; lines written meanwhile.
#include "testing/array_fixture.hpp"
#include "testing/crew.hpp"
#include "testing/effort.hpp"
#include "testing/eventually.hpp"

#include <hippogriff/array/warp.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

using hippogriff::testing::eventually;

constexpr std::uint64_t in_line = usual_line_bytes / sizeof(std::uint32_t);  // elements

// From now on the drive keeps its answers to itself until the plan is released.
void hold_reads(TestArray& array) {
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
}

void hold_writes(TestArray& array) {
  array.plan().add(
      {.point = FaultPoint::queued_write, .kind = FaultKind::hold, .times = UINT64_MAX});
}

std::vector<std::uint32_t> numbers_of(const std::vector<std::byte>& bytes) {
  std::vector<std::uint32_t> numbers(bytes.size() / sizeof(std::uint32_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(std::uint32_t));
  return numbers;
}

// How many commands are pending, as the slots say.
std::uint32_t pending_commands(const Cache& cache) {
  std::uint32_t count = 0;
  for (std::uint32_t number = 0; number < cache.queue_count + cache.pending_queue_count; ++number) {
    const QueuePair pair = cache.queue(number);
    for (std::uint32_t slot = 0; slot < pair.depth; ++slot) {
      count += shared_ref<std::uint64_t>(pair.slot(slot).pending).load(relaxed) != 0 ? 1 : 0;
    }
  }
  return count;
}

std::uint32_t dirty_lines(const Cache& cache) {
  std::uint32_t count = 0;
  std::uint64_t line = 0;
  for (std::uint32_t place = 0; place < cache.places.place_count(); ++place) {
    count += cache.places.is_dirty(place, line) ? 1 : 0;
  }
  return count;
}

struct Setup {
  std::string name;
  TestArrayOptions options;
  int threads = 16;
};

class Pending : public ::testing::TestWithParam<Setup> {};

using View = array_view<std::uint32_t>;

// One thing of many, with elements that are the thread's own. What is asked for ahead is mostly
// dropped. How many answers were wrong.
template <typename Mine>
int use_once(const View& view, std::vector<std::uint32_t>& oracle, std::uint64_t what, Mine mine) {
  const std::uint64_t index = mine();
  std::uint32_t value = 0;
  switch (what % 8) {
    case 0:
      view.prefetch(mine());
      return 0;
    case 1:
      view.prefetch_range(Alone{}, mine(), what / 8 % 4000);
      return 0;
    case 2:
      static_cast<void>(view.get_async(index));
      return 0;
    case 3: {
      const array_get<std::uint32_t> first = view.get_async(index);
      const array_get<std::uint32_t> second = view.get_async(mine());
      const bool right = second.value() == oracle[second.index()] &&
                         first.wait(value) == NvmeStatus::success && value == oracle[index];
      return right ? 0 : 1;
    }
    case 4:
      return view[index] == oracle[index] ? 0 : 1;
    default:
      oracle[index] = static_cast<std::uint32_t>(what >> 8U);
      return view.write(index, oracle[index]) == NvmeStatus::success ? 0 : 1;
  }
}

// Each element belongs to one thread, which alone writes it; one of them flushes all the while.
void use_at_random(TestArray& array, int threads, std::vector<std::uint32_t>& oracle, int rounds) {
  const View view = array.view<std::uint32_t>();
  const auto all = static_cast<std::uint64_t>(threads);
  std::atomic<int> wrong{0};
  on_threads(threads, [&](int thread) {
    std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 11);
    const auto mine = [&] {
      return random() % (view.size() / all) * all + static_cast<std::uint64_t>(thread);
    };
    for (int round = 0; round < rounds; ++round) {
      wrong += use_once(view, oracle, random(), mine);
      if (thread == 0 && round % 16 == 0) {
        array.array().flush();
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(Pending, commands_that_are_dropped_among_random_uses_leave_what_memory_would_hold) {
  TestArray array(GetParam().options);
  std::vector<std::uint32_t> oracle = numbers_of(array.stored());
  use_at_random(array, GetParam().threads, oracle, rounds_of(160));
  array.array().flush();
  array.array().check();
  if (!GetParam().options.overlaid) {
    EXPECT_EQ(numbers_of(array.stored()), oracle);
  }
  const auto view = array.view<std::uint32_t>();
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    ASSERT_EQ(view[i], oracle[i]) << i;
  }
}

// One thing of a group; `what` is the same for all of it.
int use_together(const Cache& cache,
                 const Crew::Member& all,
                 std::uint64_t index,
                 std::uint64_t what,
                 std::vector<std::uint32_t>& oracle) {
  const std::uint64_t offset = index * sizeof(std::uint32_t);
  std::uint32_t value = 0;
  NvmeStatus status = NvmeStatus::success;
  switch (what % 4) {
    case 0:
      static_cast<void>(cache.ask_ahead(all, offset / usual_line_bytes, index % 4 != 0));
      return 0;
    case 1:
      prefetch_bytes(cache, all, what / 4 % (cache.size_bytes - 4096), 4096);
      return 0;
    case 2:
      status = access_together<false>(cache, all, offset, value);
      return status == NvmeStatus::success && value == oracle[index] ? 0 : 1;
    default:
      oracle[index] = static_cast<std::uint32_t>(what ^ index);
      status = access_together<true>(cache, all, offset, oracle[index]);
      return status == NvmeStatus::success ? 0 : 1;
  }
}

void flush_by(const Crew::Member& all, const Cache& cache) {
  for (std::uint32_t place = 0; place < cache.places.place_count(); place += all.size()) {
    EXPECT_EQ(cache.flush_places(all, place), NvmeStatus::success);
  }
}

TEST_P(Pending, commands_of_groups_leave_what_memory_would_hold) {
  TestArray array(GetParam().options);
  std::vector<std::uint32_t> oracle = numbers_of(array.stored());
  const Cache& cache = array.array().cache();
  constexpr std::uint32_t crews = 2;
  constexpr std::uint32_t size = 4;
  constexpr std::uint64_t all_threads = std::uint64_t{crews} * size;
  const std::uint64_t turns = oracle.size() / all_threads;
  std::atomic<int> wrong{0};
  on_threads(crews, [&](int number) {
    Crew crew(size);
    crew.run([&](const Crew::Member& all) {
      const std::uint64_t thread = static_cast<std::uint64_t>(number) * size + all.rank();
      std::mt19937_64 random(thread + 1);
      std::mt19937_64 common(static_cast<std::uint64_t>(number) + 100);  // the crew's
      for (int round = 0; round < rounds_of(40); ++round) {
        const std::uint64_t index = random() % turns * all_threads + thread;
        wrong += use_together(cache, all, index, common(), oracle);
      }
      flush_by(all, cache);
    });
  });
  EXPECT_EQ(wrong.load(), 0);
  array.array().flush();
  const View view = array.view<std::uint32_t>();
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    ASSERT_EQ(view[i], oracle[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Caches,
    Pending,
    ::testing::Values(
        Setup{"one_line", {.cache_bytes = usual_line_bytes}},
        Setup{"one_line_shortest_queue", {.cache_bytes = usual_line_bytes, .queue_depth = 4}},
        Setup{"one_set", {.cache_bytes = 8 * usual_line_bytes}, 48},
        Setup{"three_lines", {.cache_bytes = 3 * usual_line_bytes}},
        Setup{"several_sets", {.cache_bytes = 32 * usual_line_bytes}},
        Setup{"short_queues", {.cache_bytes = 64 * usual_line_bytes, .queue_depth = 4}, 32},
        Setup{"odd_size", {.size_bytes = 61236, .cache_bytes = 16 * usual_line_bytes}},
        Setup{"staged", {.cache_bytes = 16 * usual_line_bytes, .staged = true}},
        Setup{"staged_short",
              {.cache_bytes = 8 * usual_line_bytes, .queue_depth = 4, .staged = true}},
        Setup{"memory", {.cache_bytes = 16 * usual_line_bytes, .in_memory = true}},
        Setup{"copy_on_write", {.cache_bytes = 8 * usual_line_bytes, .overlaid = true}},
        Setup{"wrap",
              {.cache_bytes = 8 * usual_line_bytes, .queue_depth = 4, .counter_base = ~0ULL - 40}},
        Setup{"wrap_in_one_line",
              {.cache_bytes = usual_line_bytes, .queue_depth = 8, .counter_base = UINT64_MAX - 3}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Pending, faults_that_pass_change_nothing) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  array.plan().randomize({.seed = 5, .try_again = 0.05, .shorten = 0.2, .delay = 0.05});
  std::vector<std::uint32_t> oracle = numbers_of(array.stored());
  use_at_random(array, 12, oracle, rounds_of(120));
  array.array().flush();
  EXPECT_EQ(numbers_of(array.stored()), oracle);
}

TEST(Prefetching, reads_each_line_once) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10, .queue_depth = 256});
  const auto view = array.view<std::uint32_t>();
  view.prefetch_range(Alone{}, 0, view.size());
  view.prefetch_range(Alone{}, 5, view.size());
  view.prefetch(7);
  EXPECT_EQ(array.array().counts().misses, 128U);
  const std::vector<std::uint32_t> expected = numbers_of(array.stored());
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    ASSERT_EQ(view[i], expected[i]) << i;
  }
  EXPECT_EQ(array.array().served().reads, 128U);
  EXPECT_EQ(pending_commands(array.array().cache()), 0U);
}

TEST(Prefetching, beyond_the_end_or_of_nothing_does_nothing) {
  TestArray array({.size_bytes = 4100});
  const auto view = array.view<std::uint32_t>();
  view.prefetch(1025);
  view.prefetch(UINT64_MAX);
  view.prefetch_range(Alone{}, 1025, 1);
  view.prefetch_range(Alone{}, UINT64_MAX, UINT64_MAX);
  view.prefetch_range(Alone{}, 0, 0);
  EXPECT_EQ(array.array().counts().misses, 0U);
  view.prefetch_range(Alone{}, 1000, UINT64_MAX);
  EXPECT_EQ(array.array().counts().misses, 2U);
  EXPECT_EQ(view.get_async(1025).value(), 0U);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::invalid_argument);
}

TEST(Prefetching, of_an_element_that_straddles_lines_has_both) {
  struct Seven {
    std::array<std::byte, 7> bytes;
  };

  TestArray array({.cache_bytes = 32 * usual_line_bytes});
  array.view<Seven>().prefetch(73);  // bytes 511 to 517
  EXPECT_EQ(array.array().counts().misses, 2U);
}

TEST(Prefetching, waits_for_nothing) {
  for (const std::uint64_t base : {std::uint64_t{0}, UINT64_MAX - 5}) {
    TestArray array({.size_bytes = std::uint64_t{512} << 10,
                     .cache_bytes = std::uint64_t{256} << 10,
                     .queue_depth = 8,
                     .counter_base = base});
    hold_reads(array);
    const auto view = array.view<std::uint32_t>();
    for (int round = 0; round < 20; ++round) {
      for (std::uint64_t line = 0; line < 1024; line += 8) {  // of all groups, so of all queues
        view.prefetch(line * in_line);
      }
    }
    EXPECT_EQ(pending_commands(array.array().cache()), 3U * 7) << "all slots but one of each queue";
    array.plan().release();
    const std::vector<std::uint32_t> expected = numbers_of(array.stored());
    for (std::uint64_t i = 0; i < view.size(); i += 37) {
      ASSERT_EQ(view[i], expected[i]) << i;
    }
  }
}

TEST(Prefetching, that_was_dropped_makes_room_for_others) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10, .queue_depth = 4});
  const auto view = array.view<std::uint32_t>();
  EXPECT_TRUE(eventually([&] {  // more lines than there are slots, and nobody reads one
    for (std::uint64_t line = 0; line < 128; ++line) {
      view.prefetch(line * in_line);
    }
    return array.array().served().reads >= 128U;
  })) << array.array().served().reads
      << " of " << array.array().counts().misses << ", pending "
      << pending_commands(array.array().cache());
}

void prefetch_by_another_thread(const View& view, std::uint64_t index) {
  std::thread([&] { view.prefetch(index); }).join();
}

TEST(Prefetching, that_was_dropped_does_not_keep_its_place_from_others) {
  for (const std::uint64_t lines : {1U, 2U, 8U}) {
    TestArray array({.cache_bytes = lines * usual_line_bytes, .queue_depth = 4});
    const auto view = array.view<std::uint32_t>();
    const std::vector<std::uint32_t> expected = numbers_of(array.stored());
    for (std::uint64_t round = 0; round < 30; ++round) {
      for (std::uint64_t line = 0; line < lines; ++line) {
        prefetch_by_another_thread(view, (round + line) * in_line);
      }
      const std::uint64_t index = (round * 7919 + 3000) % view.size();
      ASSERT_EQ(view[index], expected[index]);
    }
  }
}

TEST(Prefetching, that_fails_is_nobodys_failure_and_who_wants_the_line_asks_again) {
  TestArray array({});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 3});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> expected = numbers_of(array.stored());
  view.prefetch_range(Alone{}, 0, 3 * in_line);
  EXPECT_TRUE(eventually([&] { return array.plan().struck() == 3; }));
  on_threads(12, [&](int thread) {
    const std::uint64_t index = static_cast<std::uint64_t>(thread) % 3 * in_line;
    EXPECT_EQ(view[index], expected[index]);
  });
  array.array().check();
}

TEST(Prefetching, is_ended_by_the_arrays_end_for_all_who_wait_for_it) {
  for (const std::uint64_t lines : {1U, 8U, 64U}) {
    TestArray array({.cache_bytes = lines * usual_line_bytes, .queue_depth = 4});
    hold_reads(array);
    const auto view = array.view<std::uint32_t>();
    for (std::uint64_t line = 0; line < 64; ++line) {
      view.prefetch(line * in_line);
    }
    std::atomic<int> aborted{0};
    std::atomic<int> asked{0};
    std::vector<std::thread> threads;
    for (std::uint64_t thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        std::uint32_t value = 0;
        const array_get<std::uint32_t> got = view.get_async(thread * in_line);
        ++asked;
        aborted += got.wait(value) == NvmeStatus::aborted ? 1 : 0;
      });
    }
    EXPECT_TRUE(eventually([&] { return asked == 16; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    array.array().cache().patience.end(Ending::stopped);
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(aborted.load(), 16);
    array.plan().release();
    array.array().close();
  }
}

TEST(Prefetching, of_an_array_that_has_ended_returns) {
  TestArray array({});
  array.array().cache().patience.end(Ending::stopped);
  const auto view = array.view<std::uint32_t>();
  for (std::uint64_t line = 0; line < 128; ++line) {
    view.prefetch(line * in_line);
  }
  std::uint32_t value = 0;
  EXPECT_EQ(view.get_async(0).wait(value), NvmeStatus::aborted);
}

TEST(Prefetching, is_allowed_while_a_cursor_holds_a_line) {
  TestArray array({.cache_bytes = usual_line_bytes});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> expected = numbers_of(array.stored());
  array_cursor<std::uint32_t> cursor(view);
  for (std::uint64_t i = 0; i < view.size(); i += 61) {
    EXPECT_EQ(cursor[i], expected[i]);
    view.prefetch(i + in_line);
  }
}

TEST(Prefetching, of_lines_that_many_threads_then_want_reads_each_once) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10, .queue_depth = 256});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> expected = numbers_of(array.stored());
  std::atomic<int> wrong{0};
  on_threads(24, [&](int thread) {
    for (std::uint64_t line = 0; line < 128; ++line) {
      view.prefetch((line + 8) % 128 * in_line);
      const std::uint64_t index = line * in_line + static_cast<std::uint64_t>(thread);
      wrong += view[index] == expected[index] ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(array.array().served().reads, 128U);
}

// Seven dirty lines of a set, the eighth place is clean.
void make_seven_dirty(TestArray& array) {
  for (std::uint32_t line = 0; line < 7; ++line) {
    ASSERT_EQ(array.view<std::uint32_t>().write(line * in_line, line + 1), NvmeStatus::success);
  }
}

TEST(AsynchronousWriteBack, lets_a_miss_go_on_while_the_drive_writes) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  hold_writes(array);
  make_seven_dirty(array);
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> before = numbers_of(array.stored());
  EXPECT_EQ(view[20 * in_line], before[20 * in_line]);
  EXPECT_EQ(view[20 * in_line + 1], before[20 * in_line + 1]) << "a hit";
  EXPECT_GE(pending_commands(array.array().cache()), 5U);
  EXPECT_EQ(array.array().counts().written_back, 0U);
  array.plan().release();
  for (std::uint64_t line = 30; line < 45; ++line) {
    EXPECT_EQ(view[line * in_line], before[line * in_line]);
  }
  array.array().flush();
  EXPECT_EQ(array.array().served().writes, 7U);
  for (std::uint32_t line = 0; line < 7; ++line) {
    EXPECT_EQ(numbers_of(array.stored())[line * in_line], line + 1);
  }
}

TEST(AsynchronousWriteBack, has_whoever_wants_the_line_wait_until_it_is_written) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  hold_writes(array);
  make_seven_dirty(array);
  const auto view = array.view<std::uint32_t>();
  std::atomic<int> right{0};
  std::vector<std::jthread> threads;
  for (std::uint32_t line = 0; line < 7; ++line) {
    threads.emplace_back([&, line] { right += view[line * in_line] == line + 1 ? 1 : 0; });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  array.plan().release();
  threads.clear();
  EXPECT_EQ(right.load(), 7);
  EXPECT_EQ(array.array().served().reads, 7U) << "none was read again";
}

void flush_by_crew(const Cache& cache) {
  Crew crew(4);
  crew.run([&](const Crew::Member& all) { flush_by(all, cache); });
}

TEST(AsynchronousWriteBack, is_over_when_a_flush_is) {
  for (const bool by_groups : {false, true}) {
    TestArray array({.cache_bytes = 8 * usual_line_bytes});
    hold_writes(array);
    make_seven_dirty(array);
    static_cast<void>(array.view<std::uint32_t>()[20 * in_line]);
    EXPECT_GE(pending_commands(array.array().cache()), 5U);
    std::atomic<bool> over{false};
    std::thread flushing([&] {
      if (by_groups) {
        flush_by_crew(array.array().cache());
      } else {
        array.array().flush();
      }
      over = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(over);
    array.plan().release();
    flushing.join();
    for (std::uint32_t line = 0; line < 7; ++line) {
      EXPECT_EQ(numbers_of(array.stored())[line * in_line], line + 1);
    }
  }
}

void fill_the_drive(TestArray& array) {
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = UINT64_MAX,
                    .errno_value = ENOSPC});
}

TEST(AsynchronousWriteBack, that_fails_leaves_the_line_dirty_and_is_told) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  fill_the_drive(array);
  make_seven_dirty(array);
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> before = numbers_of(array.stored());
  EXPECT_EQ(view[20 * in_line], before[20 * in_line]);
  EXPECT_EQ(view[21 * in_line], before[21 * in_line]) << "its place was clean";
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  EXPECT_EQ(dirty_lines(array.array().cache()), 7U);
  for (std::uint32_t line = 0; line < 7; ++line) {
    EXPECT_EQ(view[line * in_line], line + 1);
  }
  array.plan().clear();
  array.array().clear_failure();
  array.array().flush();
  for (std::uint32_t line = 0; line < 7; ++line) {
    EXPECT_EQ(numbers_of(array.stored())[line * in_line], line + 1);
  }
}

TEST(AsynchronousWriteBack, that_failed_before_its_failure_was_cleared_is_not_told_again) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  fill_the_drive(array);
  make_seven_dirty(array);
  EXPECT_EQ(array.view<std::uint32_t>()[20 * in_line], numbers_of(array.stored())[20 * in_line]);
  ASSERT_TRUE(eventually([&] { return array.array().served().failures == 7; }));
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, ENOSPC)
      << "also where nobody has met the answer";
  EXPECT_NE(pending_commands(array.array().cache()), 0U);
  array.plan().clear();
  array.array().clear_failure();
  array.array().flush();
  EXPECT_EQ(numbers_of(array.stored())[6 * in_line], 7U);
}

TEST(AsynchronousWriteBack,
     that_always_fails_fails_who_needs_the_place_and_does_not_go_on_for_ever) {
  for (const std::uint64_t lines : {1U, 4U, 8U}) {
    TestArray array({.cache_bytes = lines * usual_line_bytes});
    const auto view = array.view<std::uint32_t>();
    array.plan().add({.point = FaultPoint::queued_write,
                      .kind = FaultKind::error,
                      .times = UINT64_MAX,
                      .errno_value = ENOSPC});
    for (std::uint32_t line = 0; line < lines; ++line) {
      ASSERT_EQ(view.write(line * in_line, line + 1), NvmeStatus::success);
    }
    std::atomic<int> failed{0};
    on_threads(8, [&](int thread) {
      std::uint32_t value = 0;
      const std::uint64_t line = 50 + static_cast<std::uint64_t>(thread);
      failed += view.read(line * in_line, value) == NvmeStatus::write_fault ? 1 : 0;
    });
    EXPECT_EQ(failed.load(), 8);
    EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, ENOSPC);
    array.plan().clear();
    array.array().clear_failure();
    array.array().flush();
    for (std::uint32_t line = 0; line < lines; ++line) {
      EXPECT_EQ(numbers_of(array.stored())[line * in_line], line + 1);
    }
  }
}

void write_until_aborted(const View& view, std::uint32_t first_line) {
  for (std::uint32_t line = first_line; line < 128; line += 16) {
    if (view.write(line * in_line, 1) == NvmeStatus::aborted) {
      return;
    }
  }
}

TEST(AsynchronousWriteBack, is_ended_by_the_arrays_end_for_all_who_wait_for_it) {
  for (const std::uint64_t lines : {1U, 8U}) {
    TestArray array({.cache_bytes = lines * usual_line_bytes, .queue_depth = 4});
    hold_writes(array);
    const auto view = array.view<std::uint32_t>();
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (std::uint32_t thread = 0; thread < 16; ++thread) {
      threads.emplace_back([&, thread] {
        write_until_aborted(view, thread);
        ++ended;
      });
    }
    EXPECT_TRUE(eventually([&] { return pending_commands(array.array().cache()) != 0; }));
    EXPECT_LT(ended.load(), 16);
    array.array().cache().patience.end(Ending::stopped);
    for (std::thread& thread : threads) {
      thread.join();
    }
    EXPECT_EQ(ended.load(), 16);
    EXPECT_EQ(failure_of([&] { array.array().flush(); }).status, Status::cancelled);
    array.plan().release();
    array.array().close();
  }
}

}  // namespace
}  // namespace hippogriff::ondemand
