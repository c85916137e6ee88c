// Lines that are asked for together: against the file, in caches and queues that are too small.
#include "testing/array_fixture.hpp"
#include "testing/effort.hpp"

#include <hippogriff/array/prefetch.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace hippogriff::ondemand {
namespace {

struct RangesCase {
  std::string name;
  TestArrayOptions options;
};

class ReadRanges : public ::testing::TestWithParam<RangesCase> {};

TEST_P(ReadRanges, of_many_threads_give_what_the_file_holds) {
  TestArray array(GetParam().options);
  const std::vector<std::byte> expected = array.stored();
  const Cache& cache = array.array().cache();
  std::atomic<int> wrong{0};
  on_threads(12, [&](int thread) {
    std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 3);
    for (int round = 0; round < rounds_of(30); ++round) {
      const std::uint64_t bytes = 1 + random() % 3000;
      std::vector<std::uint64_t> offsets(random() % 20);
      std::ranges::generate(offsets, [&] { return random() % (expected.size() - bytes); });
      const auto window = static_cast<std::uint32_t>(random() % 128);
      std::vector<unsigned char> read(offsets.size() * bytes);
      const auto offset_of = [&](std::uint64_t i) { return offsets[i]; };
      const NvmeStatus status =
          read_ranges(RangeWalk(cache, offset_of, bytes, 0, offsets.size()), window, read.data());
      wrong += status == NvmeStatus::success ? 0 : 1;
      for (std::size_t i = 0; i < offsets.size(); ++i) {
        wrong += std::memcmp(&read[i * bytes], &expected[offsets[i]], bytes) == 0 ? 0 : 1;
      }
    }
  });
  EXPECT_EQ(wrong.load(), 0);
  array.array().check();
}

INSTANTIATE_TEST_SUITE_P(
    Caches,
    ReadRanges,
    ::testing::Values(
        RangesCase{"one_line", {.cache_bytes = 512, .queue_depth = 4}},
        RangesCase{"a_queue_shorter_than_the_window", {.cache_bytes = 32 << 10, .queue_depth = 4}},
        RangesCase{"all_fits", {.cache_bytes = 1U << 20U}},
        RangesCase{"odd_size", {.size_bytes = 65537, .cache_bytes = 4096}},
        RangesCase{"in_memory", {.cache_bytes = 8192, .in_memory = true}},
        RangesCase{"staged", {.cache_bytes = 8192, .staged = true}},
        RangesCase{"counters_that_wrap",
                   {.cache_bytes = 32 << 10, .queue_depth = 4, .counter_base = UINT64_MAX - 40}}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(Prefetch, loads_each_line_once_and_a_read_finds_it) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10});
  {
    Prefetch prefetch(array.array().cache());
    for (std::uint64_t line = 0; line < 128; ++line) {
      prefetch.ask(line);
      prefetch.ask(line);
    }
  }
  EXPECT_EQ(array.array().counts().misses, 128U);
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::byte> expected = array.stored();
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    std::uint32_t value = 0;
    std::memcpy(&value, &expected[i * sizeof value], 4);
    ASSERT_EQ(view[i], value) << i;
  }
  EXPECT_EQ(array.array().served().reads, 128U);
}

TEST(Prefetch, writes_nothing_back_for_what_may_not_be_wanted) {
  TestArray array({.cache_bytes = 4096});
  const auto view = array.view<std::uint32_t>();
  for (std::uint64_t line = 0; line < 8; ++line) {
    EXPECT_EQ(view.write(line * 128, 7), NvmeStatus::success);
  }
  for (std::uint64_t line = 0; line < 8; ++line) {  // waits for those that are written behind
    std::uint32_t value = 0;
    EXPECT_EQ(view.read(line * 128, value), NvmeStatus::success);
  }
  const std::uint64_t written = array.array().served().writes;
  {
    Prefetch prefetch(array.array().cache());
    for (std::uint64_t line = 64; line < 128; ++line) {
      prefetch.ask(line);
    }
  }
  EXPECT_EQ(array.array().served().writes, written);
  array.array().flush();
  EXPECT_EQ(array.stored()[0], std::byte{7});
}

TEST(Prefetch, that_fails_is_no_failure_until_somebody_wants_the_line) {
  TestArray array({});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  {
    Prefetch prefetch(array.array().cache());
    prefetch.ask(3);
  }
  array.array().check();
  std::uint32_t value = 0;
  EXPECT_EQ(array.view<std::uint32_t>().read(384, value), NvmeStatus::success);
  array.array().check();
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::error,
                    .times = 1,
                    .errno_value = ENODEV});
  EXPECT_NE(array.view<std::uint32_t>().read(std::uint64_t{64} * 128, value), NvmeStatus::success);
  const Failure failure = failure_of([&] { array.array().check(); });
  EXPECT_EQ(failure.errno_value, ENODEV) << "not what befell the prefetch";
  EXPECT_EQ(failure.offset, std::uint64_t{64} * 512);
}

TEST(Prefetch, ends_with_the_array) {
  TestArray array({});
  array.array().cache().patience.end(Ending::stopped);
  {
    Prefetch prefetch(array.array().cache());
    for (std::uint64_t line = 0; line < 128; ++line) {
      prefetch.ask(line);
    }
  }
  std::uint32_t value = 0;
  EXPECT_EQ(array.view<std::uint32_t>().read(0, value), NvmeStatus::aborted);
}

TEST(WriteBack, writes_each_dirty_line_once_but_for_those_that_are_held) {
  for (const bool staged : {false, true}) {
    TestArray array({.cache_bytes = std::uint64_t{256} << 10, .queue_depth = 16, .staged = staged});
    const Cache& cache = array.array().cache();
    const auto view = array.view<std::uint32_t>();
    for (std::uint32_t line = 0; line < 100; ++line) {
      ASSERT_EQ(view.write(std::uint64_t{line} * 128, line + 1), NvmeStatus::success);
    }
    const Held held = cache.hold(Alone{}, 3, Intent::use);
    ASSERT_EQ(held.status, NvmeStatus::success);
    WriteBack writes(cache);
    for (std::uint32_t place = 0; place < cache.places.place_count(); ++place) {
      writes.ask(place);
      writes.ask(place);
    }
    EXPECT_EQ(writes.finish(), NvmeStatus::success);
    EXPECT_EQ(array.array().served().writes, 99U);
    static_cast<void>(cache.drop(Alone{}, held, false));
    array.array().flush();
    EXPECT_EQ(array.array().served().writes, 100U);
    const std::vector<std::byte> stored = array.stored();
    for (std::uint32_t line = 0; line < 100; ++line) {
      std::uint32_t value = 0;
      std::memcpy(&value, &stored[std::size_t{line} * 512], sizeof value);
      EXPECT_EQ(value, line + 1);
    }
  }
}

TEST(WriteBack, tells_of_a_line_that_was_not_written_and_leaves_it_dirty) {
  TestArray array({});
  const Cache& cache = array.array().cache();
  ASSERT_EQ(array.view<std::uint32_t>().write(0, 7), NvmeStatus::success);
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 1,
                    .errno_value = ENOSPC});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  array.array().clear_failure();
  std::uint64_t line = 0;
  std::uint32_t dirty = 0;
  for (std::uint32_t place = 0; place < cache.places.place_count(); ++place) {
    dirty += cache.places.is_dirty(place, line) ? 1 : 0;
  }
  EXPECT_EQ(dirty, 1U);
  array.array().flush();
  EXPECT_EQ(array.stored()[0], std::byte{7});
}

TEST(WriteBack, ends_with_the_array) {
  TestArray array({});
  const Cache& cache = array.array().cache();
  for (std::uint32_t line = 0; line < 32; ++line) {
    ASSERT_EQ(array.view<std::uint32_t>().write(std::uint64_t{line} * 128, 1), NvmeStatus::success);
  }
  cache.patience.end(Ending::stopped);
  WriteBack writes(cache);
  for (std::uint32_t place = 0; place < cache.places.place_count(); ++place) {
    writes.ask(place);
  }
  EXPECT_EQ(writes.finish(), NvmeStatus::aborted);
}

TEST(WriteBack, by_threads_that_find_few_clean_places_writes_each_line_once) {
  TestArray array({.cache_bytes = 4096});
  const auto view = array.view<std::uint32_t>();
  for (std::uint32_t line = 0; line < 16; ++line) {
    ASSERT_EQ(view.write(std::uint64_t{line} * 128, line + 1), NvmeStatus::success);
  }
  EXPECT_GE(array.array().served().writes, 8U);
  array.array().flush();
  const std::vector<std::byte> stored = array.stored();
  for (std::uint32_t line = 0; line < 16; ++line) {
    EXPECT_EQ(stored[std::size_t{line} * 512], static_cast<std::byte>(line + 1));
  }
  EXPECT_EQ(array.array().served().writes, 16U);
}

}  // namespace
}  // namespace hippogriff::ondemand
