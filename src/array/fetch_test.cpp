// Groups: queues, lines and accesses by threads that stand for the lanes of warps.
#include "array/controller_queue.hpp"
#include "testing/array_fixture.hpp"
#include "testing/crew.hpp"
#include "testing/effort.hpp"

#include <hippogriff/array/warp.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

// Runs `work(crew number, member)` on crews of `size` threads.
template <typename Work>
void on_crews(std::uint32_t crews, std::uint32_t size, Work work) {
  std::vector<std::jthread> threads;
  for (std::uint32_t number = 0; number < crews; ++number) {
    threads.emplace_back([number, size, &work] {
      Crew crew(size);
      crew.run([&](const Crew::Member& member) { work(number, member); });
    });
  }
}

// As a kernel does it.
void flush_by(std::uint32_t crews, std::uint32_t size, const Cache& cache) {
  on_crews(crews, size, [&](std::uint32_t number, const Crew::Member& all) {
    for (std::uint32_t place = number * size; place < cache.places.place_count();
         place += crews * size) {
      EXPECT_EQ(cache.flush_places(all, place), NvmeStatus::success);
    }
  });
}

struct Case {
  std::string name;
  TestArrayOptions options;
};

class Groups : public ::testing::TestWithParam<Case> {};

// Every element belongs to one thread, which alone writes it.
TEST_P(Groups, whose_lanes_access_lines_of_their_own_leave_what_memory_would_hold) {
  constexpr std::uint32_t crews = 3;
  constexpr std::uint32_t size = 4;
  constexpr std::uint64_t all_threads = std::uint64_t{crews} * size;
  TestArray under_test(GetParam().options);
  const Cache& cache = under_test.array().cache();
  const std::uint64_t count = cache.size_bytes / sizeof(std::uint32_t);
  std::vector<std::uint32_t> oracle(count);
  std::memcpy(oracle.data(), under_test.stored().data(), count * sizeof(std::uint32_t));
  std::atomic<int> wrong{0};
  on_crews(crews, size, [&](std::uint32_t number, const Crew::Member& all) {
    const std::uint32_t thread = number * size + all.rank();
    std::mt19937_64 random(thread + 1);
    std::mt19937_64 common(number + 100);  // the same for all of a crew
    for (int round = 0; round < rounds_of(60); ++round) {
      const std::uint64_t near = common() % (count / all_threads);
      const bool writes = common() % 3 == 0;
      const std::uint64_t turn = common() % 2 == 0 ? near : random() % (count / all_threads);
      const std::uint64_t index = turn * all_threads + thread;
      NvmeStatus status = NvmeStatus::success;
      if (writes) {
        oracle[index] = static_cast<std::uint32_t>(random());
        status = access_together<true>(cache, all, index * sizeof(std::uint32_t), oracle[index]);
      } else {
        std::uint32_t value = 0;
        status = access_together<false>(cache, all, index * sizeof(std::uint32_t), value);
        wrong += value == oracle[index] ? 0 : 1;
      }
      wrong += status == NvmeStatus::success ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  flush_by(crews, size, cache);
  under_test.array().sync();
  EXPECT_EQ(std::memcmp(under_test.stored().data(), oracle.data(), count * sizeof(std::uint32_t)),
            0);
}

TEST_P(Groups, that_read_ranges_have_the_bytes_of_the_file) {
  TestArray under_test(GetParam().options);
  const Cache& cache = under_test.array().cache();
  const std::vector<std::byte> stored = under_test.stored();
  std::array<std::vector<unsigned char>, 2> buffers;
  std::atomic<int> wrong{0};
  on_crews(2, 4, [&](std::uint32_t number, const Crew::Member& all) {
    std::mt19937_64 common(number + 5);  // the same for all of a crew
    for (int round = 0; round < rounds_of(40); ++round) {
      const std::uint64_t offset = common() % cache.size_bytes;
      const std::uint64_t bytes =
          std::min<std::uint64_t>(common() % (10 * usual_line_bytes), cache.size_bytes - offset);
      std::vector<unsigned char>& to = buffers[number];
      if (all.leads()) {
        to.assign(bytes, 0);
      }
      all.meet();
      const NvmeStatus status = read_bytes(cache, all, offset, bytes, to.data());
      all.meet();
      wrong += status == NvmeStatus::success ? 0 : 1;
      wrong += all.leads() && std::memcmp(to.data(), &stored[offset], bytes) != 0 ? 1 : 0;
      all.meet();
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(
    Caches,
    Groups,
    ::testing::Values(Case{.name = "roomy", .options = {.cache_bytes = 64 * usual_line_bytes}},
                      Case{.name = "eight_lines", .options = {.cache_bytes = 8 * usual_line_bytes}},
                      Case{.name = "one_line", .options = {.cache_bytes = usual_line_bytes}},
                      Case{.name = "staged",
                           .options = {.cache_bytes = 32 * usual_line_bytes, .staged = true}},
                      Case{.name = "short_queues",
                           .options = {.cache_bytes = 32 * usual_line_bytes, .queue_depth = 4}},
                      Case{.name = "memory",
                           .options = {.cache_bytes = 32 * usual_line_bytes, .in_memory = true}},
                      Case{.name = "counters_that_wrap",
                           .options = {.cache_bytes = 32 * usual_line_bytes,
                                       .queue_depth = 4,
                                       .counter_base = UINT64_MAX - 50}}),
    [](const auto& tested) { return tested.param.name; });

TEST(Fetch, gets_lines_that_are_not_there_by_one_command_each) {
  TestArray array({.cache_bytes = 64 * usual_line_bytes});
  const Cache& cache = array.array().cache();
  std::atomic<int> come{0};
  std::atomic<int> right{0};
  const std::vector<std::byte> stored = array.stored();
  Crew crew(8);
  crew.run([&](const Crew::Member& all) {
    for (int round = 0; round < 2; ++round) {
      const std::uint64_t line = all.rank() / 2;  // two want the same: it is claimed once
      std::uint32_t place = 0;
      const bool has_come = fetch(cache, all, line, true, place);
      if (has_come) {
        come += 1;
        right +=
            std::memcmp(
                cache.bytes_of(place), &stored[line * usual_line_bytes], usual_line_bytes) == 0;
      }
      all.meet();
      if (has_come) {
        cache.places.drop(place, false);
      }
      all.meet();
    }
  });
  EXPECT_EQ(come.load(), 4) << "the second time they are there";
  EXPECT_EQ(right.load(), 4);
  EXPECT_EQ(array.array().served().reads, 4U);
  EXPECT_EQ(array.array().counts().accesses, 4U);
  EXPECT_EQ(array.array().counts().hits(), 0U);
}

TEST(Fetch, by_a_group_that_finds_few_clean_places_has_cold_lines_written_once_each) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  const Cache& cache = array.array().cache();
  Crew crew(8);
  crew.run([&](const Crew::Member& all) {
    std::uint32_t value = all.rank();
    EXPECT_EQ(access_together<true>(cache, all, all.rank() * usual_line_bytes, value),
              NvmeStatus::success);
    EXPECT_EQ(access_together<false>(cache, all, 8 * usual_line_bytes, value), NvmeStatus::success);
  });
  EXPECT_GE(array.array().served().writes, 1U);
  EXPECT_EQ(array.array().counts().misses, 9U);
  array.array().flush();
  EXPECT_EQ(array.array().counts().written_back, 8U);
  for (std::uint32_t line = 0; line < 8; ++line) {
    EXPECT_EQ(array.stored()[std::size_t{line} * usual_line_bytes], static_cast<std::byte>(line));
  }
}

TEST(StorageArray, a_line_that_cannot_be_written_does_not_fail_accesses_to_others) {
  TestArray array({.cache_bytes = 8 * usual_line_bytes});
  const array_view<std::uint32_t> view = array.view<std::uint32_t>();
  for (std::uint64_t line = 0; line < 16; line += 2) {  // each a request of its own
    ASSERT_EQ(view.write(line * 128, 7), NvmeStatus::success);
  }
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 1,
                    .errno_value = ENOSPC});
  std::uint32_t value = 0;
  EXPECT_EQ(view.read(std::uint64_t{17} * 128, value), NvmeStatus::success);
  EXPECT_EQ(view.read(std::uint64_t{19} * 128, value), NvmeStatus::success);
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC) << "it is told";
  array.array().clear_failure();
  array.array().flush();
  for (std::uint64_t line = 0; line < 16; line += 2) {
    EXPECT_EQ(array.stored()[line * usual_line_bytes], std::byte{7});
  }
}

TEST(StorageArray, a_flush_tells_of_a_write_that_was_lost) {
  TestArray array({});
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1, .errno_value = EIO});
  const array_view<std::uint32_t> view = array.view<std::uint32_t>();
  array_cursor<std::uint32_t> cursor(view);
  EXPECT_NE(cursor.write(5, 1), NvmeStatus::success);
  cursor.let_go();
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, EIO);
}

TEST(Fetch, of_lines_that_fail_is_told_to_each_of_its_own) {
  TestArray array({.cache_bytes = 64 * usual_line_bytes});
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::error,
                    .times = 1000,
                    .errno_value = EIO});
  std::atomic<int> failed{0};
  Crew crew(4);
  crew.run([&](const Crew::Member& all) {
    std::uint32_t value = 0;
    failed +=
        access_together<false>(array.array().cache(), all, all.rank() * usual_line_bytes, value) ==
        NvmeStatus::unrecovered_read;
  });
  EXPECT_EQ(failed.load(), 4);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, EIO);
}

TEST(Fetch, ends_with_the_array) {
  TestArray array({.cache_bytes = 64 * usual_line_bytes});
  array.array().cache().patience.end(Ending::stopped);
  std::atomic<int> aborted{0};
  Crew crew(4);
  crew.run([&](const Crew::Member& all) {
    std::uint32_t value = 0;
    aborted +=
        access_together<false>(array.array().cache(), all, all.rank() * usual_line_bytes, value) ==
        NvmeStatus::aborted;
  });
  EXPECT_EQ(aborted.load(), 4);
}

}  // namespace
}  // namespace hippogriff::ondemand
