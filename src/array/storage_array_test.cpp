// Arrays against an oracle in memory, under many threads; faults; what the cache does and leaves.
#include "array/storage_array.hpp"

#include "testing/array_fixture.hpp"
#include "testing/effort.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t short_line = 512;

template <std::size_t Size>
struct Element {
  std::array<std::byte, Size> bytes{};

  friend bool operator==(const Element&, const Element&) = default;
};

template <std::size_t Size>
Element<Size> element_of(std::uint64_t number) {
  Element<Size> element;
  for (std::size_t i = 0; i < Size; ++i) {
    element.bytes[i] = static_cast<std::byte>(spread(number + i / 8) >> (i % 8 * 8));
  }
  return element;
}

template <typename T>
std::vector<T> elements_of(std::span<const std::byte> bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(static_cast<void*>(elements.data()), bytes.data(), elements.size() * sizeof(T));
  return elements;
}

// Each element belongs to one thread, which alone writes it: neighbours are others', in the same
// line.
template <std::size_t Size>
std::uint64_t random_operations(TestArray& under_test, int threads, int rounds) {
  using T = Element<Size>;
  const array_view<T> view = under_test.view<T>();
  std::vector<T> oracle = elements_of<T>(under_test.stored());
  std::atomic<std::uint64_t> wrong{0};
  on_threads(threads, [&](int thread) {
    std::mt19937_64 random(static_cast<std::uint64_t>(thread) + 7);
    array_cursor<T> cursor(view);
    const auto mine = [&] {
      const std::uint64_t turn = random() % (view.size() / static_cast<std::uint64_t>(threads));
      return turn * static_cast<std::uint64_t>(threads) + static_cast<std::uint64_t>(thread);
    };
    for (int round = 0; round < rounds; ++round) {
      const std::uint64_t index = mine();
      const std::uint64_t what = random() % 8;
      if (what < 3) {
        oracle[index] = element_of<Size>(random());
        const NvmeStatus status = what == 0 ? cursor.write(index, oracle[index])
                                            : (cursor.let_go(), view.write(index, oracle[index]));
        wrong.fetch_add(status == NvmeStatus::success ? 0 : 1);
      } else if (what == 3) {
        wrong.fetch_add(cursor[index] == oracle[index] ? 0 : 1);
      } else {
        cursor.let_go();
        wrong.fetch_add(view[index] == oracle[index] ? 0 : 1);
      }
    }
  });
  under_test.array().flush();
  const std::vector<T> stored = elements_of<T>(under_test.stored());
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const T& now = under_test.options().overlaid ? view[i] : stored[i];
    wrong.fetch_add(now == oracle[i] ? 0 : 1);
  }
  return wrong.load();
}

struct StoredCase {
  std::string name;
  TestArrayOptions options;
  int threads = 24;
};

class ArrayOracle : public ::testing::TestWithParam<StoredCase> {};

TEST_P(ArrayOracle, random_operations_of_many_threads_leave_what_memory_would_hold) {
  const StoredCase& given = GetParam();
  const int rounds = rounds_of(160);
  {
    TestArray array(given.options);
    EXPECT_EQ(random_operations<4>(array, given.threads, rounds), 0U) << "elements of 4 bytes";
  }
  {
    TestArray array(given.options);
    EXPECT_EQ(random_operations<12>(array, given.threads, rounds), 0U) << "elements of 12 bytes";
    for (std::uint32_t copy = 1; given.options.stripe_bytes == 0 && copy < given.options.files;
         ++copy) {
      EXPECT_EQ(array.stored(copy), array.stored()) << "copy " << copy;
    }
  }
  {
    TestArray array(given.options);
    EXPECT_EQ(random_operations<700>(array, given.threads / 4, rounds / 4), 0U)
        << "elements longer than a line";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Caches,
    ArrayOracle,
    ::testing::Values(
        StoredCase{"one_line", {.cache_bytes = 512}},
        StoredCase{"few_lines", {.cache_bytes = 4 * short_line}, 64},
        StoredCase{"several_sets", {.cache_bytes = 32 * short_line}},
        StoredCase{"all_fits", {.cache_bytes = 1U << 20U}},
        StoredCase{"all_loaded", {.cache_bytes = 128 * short_line, .loaded = true}},
        StoredCase{"odd_loaded",
                   {.size_bytes = 61234,
                    .cache_bytes = 1U << 20U,
                    .file_offset = 77,
                    .staged = true,
                    .loaded = true}},
        StoredCase{"copy_on_write_loaded",
                   {.cache_bytes = 128 * short_line, .overlaid = true, .loaded = true}},
        StoredCase{"long_lines", {.cache_bytes = std::uint64_t{3} * 4096, .line_bytes = 4096}},
        StoredCase{"odd_size", {.size_bytes = 65537, .cache_bytes = 8 * short_line}},
        StoredCase{"odd_offset",
                   {.size_bytes = 40000, .cache_bytes = 8 * short_line, .file_offset = 1111}},
        StoredCase{"in_memory", {.cache_bytes = 8 * short_line, .in_memory = true}},
        StoredCase{"odd_memory",
                   {.size_bytes = 30001, .cache_bytes = 8 * short_line, .in_memory = true}},
        StoredCase{"striped",
                   {.cache_bytes = 8 * short_line, .files = 3, .stripe_bytes = short_line}},
        StoredCase{"odd_stripes",
                   {.size_bytes = 61234,
                    .cache_bytes = 8 * short_line,
                    .file_offset = 77,
                    .files = 4,
                    .stripe_bytes = 5 * short_line}},
        StoredCase{"replicated", {.size_bytes = 40000, .cache_bytes = 8 * short_line, .files = 3}},
        StoredCase{"direct",
                   {.size_bytes = 65537,
                    .cache_bytes = std::uint64_t{4} * 4096,
                    .line_bytes = 4096,
                    .io = IoKind::direct}},
        StoredCase{"direct_short_lines",
                   {.size_bytes = 61000,
                    .cache_bytes = 8 * short_line,
                    .file_offset = 512,
                    .io = IoKind::direct}},
        StoredCase{"direct_stripes",
                   {.size_bytes = 123456,
                    .cache_bytes = std::uint64_t{5} * 8192,
                    .line_bytes = 8192,
                    .file_offset = 4096,
                    .files = 3,
                    .stripe_bytes = 8192,
                    .io = IoKind::direct}},
        StoredCase{"copy_on_write", {.cache_bytes = 4 * short_line, .overlaid = true}},
        StoredCase{"copy_on_write_of_stripes",
                   {.size_bytes = 61234,
                    .cache_bytes = 8 * short_line,
                    .files = 4,
                    .stripe_bytes = 5 * short_line,
                    .overlaid = true}},
        StoredCase{"copy_on_write_of_memory",
                   {.size_bytes = 30001,
                    .cache_bytes = 8 * short_line,
                    .in_memory = true,
                    .staged = true,
                    .overlaid = true}},
        StoredCase{"staged", {.cache_bytes = 8 * short_line, .staged = true}},
        StoredCase{"copied_by_a_crew",
                   {.cache_bytes = 64 * short_line, .staged = true, .copiers = 3}},
        StoredCase{"copied_together_by_a_crew",
                   {.cache_bytes = 64 * short_line,
                    .staged = true,
                    .copiers = 3,
                    .copiers_bytes_min = 3 * short_line}},
        StoredCase{"copies_by_a_crew",
                   {.size_bytes = 61234,
                    .cache_bytes = 64 * short_line,
                    .copiers = 2,
                    .files = 3,
                    .overlaid = true}},
        StoredCase{"staged_memory",
                   {.size_bytes = 30001,
                    .cache_bytes = 8 * short_line,
                    .in_memory = true,
                    .staged = true}},
        StoredCase{
            "counters_that_wrap",
            {.cache_bytes = 8 * short_line, .queue_depth = 4, .counter_base = UINT64_MAX - 40}}),
    [](const auto& parameter) { return parameter.param.name; });

TEST(StorageArray, faults_that_pass_do_not_change_what_is_read_and_written) {
  TestArray array({.cache_bytes = 8 * short_line});
  array.plan().randomize({.seed = 5, .try_again = 0.05, .shorten = 0.2, .delay = 0.02});
  array.plan().add(
      {.point = FaultPoint::residency, .kind = FaultKind::residency_unknown, .times = UINT64_MAX});
  EXPECT_EQ(random_operations<12>(array, 16, rounds_of(200)), 0U);
}

TEST(StorageArray, faults_that_pass_do_not_change_what_a_crew_copies) {
  for (const std::size_t bytes_min : {short_line, 4 * short_line}) {
    TestArray array({.cache_bytes = 64 * short_line, .copiers = 3, .copiers_bytes_min = bytes_min});
    array.plan().randomize({.seed = 6, .try_again = 0.05, .shorten = 0.2, .delay = 0.02});
    EXPECT_EQ(random_operations<12>(array, 16, rounds_of(200)), 0U);
  }
}

TEST(StorageArray, a_line_that_many_want_is_read_once) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10});
  const auto view = array.view<std::uint32_t>();
  on_threads(64, [&](int thread) {
    for (std::uint64_t i = 0; i < view.size(); i += 128) {
      static_cast<void>(view[i + static_cast<std::uint64_t>(thread)]);
    }
  });
  EXPECT_EQ(array.array().served().reads, 128U);
  EXPECT_EQ(array.array().counts().misses, 128U);
}

TEST(StorageArray, lines_that_are_overwritten_as_a_whole_are_not_read) {
  TestArray array({.size_bytes = 65000, .cache_bytes = 8 * short_line});
  const auto view = array.view<std::uint8_t>();
  const std::vector<std::uint8_t> ones(65000, 1);
  EXPECT_EQ(view.write_range(Alone{}, 0, ones.size(), ones.data()), NvmeStatus::success);
  array.array().flush();
  EXPECT_EQ(array.array().served().reads, 0U);
  EXPECT_EQ(array.array().counts().overwritten, 127U);
  EXPECT_TRUE(std::ranges::all_of(array.stored(), [](std::byte b) { return b == std::byte{1}; }));
  EXPECT_EQ(view.write_range(Alone{}, 1, 600, ones.data()), NvmeStatus::success);
  EXPECT_EQ(array.array().served().reads, 2U);
}

TEST(StorageArray, reading_writes_nothing_back) {
  TestArray array({.cache_bytes = 4 * short_line});
  const auto view = array.view<std::uint64_t>();
  array_cursor<std::uint64_t> cursor(view);
  for (std::uint64_t i = 0; i < view.size(); ++i) {
    static_cast<void>(cursor[i]);
  }
  cursor.let_go();
  array.array().flush();
  EXPECT_EQ(array.array().served().writes, 0U);
  EXPECT_EQ(array.array().served().reads, 128U);
}

TEST(StorageArray, linked_cursors_get_on_in_a_cache_of_one_line) {
  TestArray array({.cache_bytes = 512});
  const auto view = array.view<std::uint32_t>();
  const std::vector<std::uint32_t> expected = elements_of<std::uint32_t>(array.stored());
  std::atomic<int> wrong{0};
  on_threads(16, [&](int thread) {
    linked_array_cursor<std::uint32_t> first(view);
    linked_array_cursor<std::uint32_t> second(view);
    second.link(first);
    for (std::uint64_t i = 0; i < 100; ++i) {
      const std::uint64_t a = (i * 997 + static_cast<std::uint64_t>(thread)) % view.size();
      const std::uint64_t b = (i * 131 + 5000) % view.size();
      wrong += first[a] == expected[a] && second[b] == expected[b] ? 0 : 1;
    }
  });
  EXPECT_EQ(wrong.load(), 0);
}

TEST(StorageArray, indices_beyond_the_end_give_zero_and_a_failure) {
  TestArray array({.size_bytes = 4100});
  const auto view = array.view<std::uint32_t>();
  EXPECT_NE(view[1024], 0U);
  array.array().check();
  EXPECT_EQ(view[1025], 0U);
  EXPECT_EQ(view[UINT64_MAX], 0U);
  std::uint32_t two[2] = {};
  EXPECT_EQ(view.read_range(Alone{}, 1024, 2, two), NvmeStatus::out_of_range);
  EXPECT_EQ(view.read_range(Alone{}, UINT64_MAX, 2, two), NvmeStatus::out_of_range);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::invalid_argument);
  array.array().clear_failure();
  array.array().check();
}

TEST(StorageArray, writing_an_array_that_was_opened_for_reading_is_refused) {
  TestArray array({.writable = false});
  const auto view = array.view<std::uint32_t>();
  array_cursor<std::uint32_t> cursor(view);
  const std::uint32_t value = 1;
  EXPECT_EQ(view.write(0, value), NvmeStatus::access_denied);
  EXPECT_EQ(cursor.write(0, value), NvmeStatus::access_denied);
  EXPECT_EQ(view.write_range(Alone{}, 0, 1, &value), NvmeStatus::access_denied);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::invalid_argument);
}

TEST(StorageArray, a_read_that_fails_reaches_every_waiter_and_the_host_with_offset_and_errno) {
  TestArray array({.file_offset = 4096});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 1});
  const auto view = array.view<std::uint32_t>();
  std::atomic<int> failed{0};
  std::uint32_t value = 1;
  EXPECT_EQ(view.read(1000, value), NvmeStatus::unrecovered_read);
  const Failure failure = failure_of([&] { array.array().check(); });
  EXPECT_EQ(failure.status, Status::io_error);
  EXPECT_EQ(failure.errno_value, EIO);
  EXPECT_EQ(failure.offset, 4096U + 4000 / 512 * short_line);
  EXPECT_EQ(failure.object, array.path());
  array.array().clear_failure();
  EXPECT_EQ(view.read(1000, value), NvmeStatus::success) << "the next access tries again";
  array.array().check();

  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = UINT64_MAX});
  on_threads(32, [&](int) {
    std::uint32_t other = 0;
    failed += view.read(4000, other) == NvmeStatus::unrecovered_read ? 1 : 0;
  });
  EXPECT_EQ(failed.load(), 32);
}

TEST(StorageArray, a_queued_read_that_fails_reaches_the_host) {
  TestArray array({});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::error, .errno_value = ENXIO});
  std::uint32_t value = 1;
  EXPECT_EQ(array.view<std::uint32_t>().read(0, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, ENXIO);
}

TEST(StorageArray, a_file_that_was_cut_gives_an_error_and_not_old_or_made_up_bytes) {
  TestArray array({});
  std::filesystem::resize_file(array.path(), 10000);
  const auto view = array.view<std::uint8_t>();
  std::uint8_t value = 0;
  EXPECT_EQ(view.read(9000, value), NvmeStatus::success);
  EXPECT_EQ(view.read(12000, value), NvmeStatus::unrecovered_read);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::short_file);
}

TEST(StorageArray, lines_that_could_not_be_written_stay_and_are_written_later) {
  TestArray array({.cache_bytes = 64 * short_line});
  const auto view = array.view<std::uint32_t>();
  for (std::uint32_t i = 0; i < 4000; ++i) {
    ASSERT_EQ(view.write(i, i), NvmeStatus::success);
  }
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = UINT64_MAX,
                    .errno_value = ENOSPC});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  array.plan().clear();
  array.array().clear_failure();
  array.array().flush();
  const std::vector<std::uint32_t> stored = elements_of<std::uint32_t>(array.stored());
  for (std::uint32_t i = 0; i < 4000; ++i) {
    ASSERT_EQ(stored[i], i);
  }
}

TEST(StorageArray, a_flush_waits_for_a_cursor_that_has_written) {
  TestArray array({});
  const auto view = array.view<std::uint32_t>();
  std::atomic<bool> flushed{false};
  std::thread flusher;
  {
    array_cursor<std::uint32_t> cursor(view);
    ASSERT_EQ(cursor.write(5, 42), NvmeStatus::success);
    flusher = std::thread([&] {
      array.array().flush();
      flushed = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(flushed.load());
    ASSERT_EQ(cursor.write(6, 43), NvmeStatus::success);
  }
  flusher.join();
  const std::vector<std::uint32_t> stored = elements_of<std::uint32_t>(array.stored());
  EXPECT_EQ(stored[5], 42U);
  EXPECT_EQ(stored[6], 43U);
}

TEST(StorageArray, a_flush_that_waits_too_long_for_a_cursor_fails_alone) {
  for (const bool writes : {false, true}) {
    TestArray array({.wait_limit = std::chrono::milliseconds(50)});
    const auto view = array.view<std::uint32_t>();
    ASSERT_EQ(view.write(5, 42), NvmeStatus::success);
    ASSERT_EQ(view.write(9000, 44), NvmeStatus::success) << "in another line";
    {
      array_cursor<std::uint32_t> cursor(view);
      std::uint32_t value = 0;
      ASSERT_EQ(writes ? cursor.write(6, 43) : cursor.read(6, value), NvmeStatus::success);
      const Failure failure = failure_of([&] { array.array().flush(); });
      EXPECT_EQ(failure.status, Status::timed_out);
      EXPECT_NE(failure.detail.find("keeps line 0"), std::string::npos) << failure.detail;
      EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[9000], 44U);
      EXPECT_EQ(cursor[7], elements_of<std::uint32_t>(array.stored())[7]);
    }
    array.array().check();
    array.array().flush();
    EXPECT_EQ(elements_of<std::uint32_t>(array.stored())[5], 42U);
    EXPECT_EQ(view[10'000], elements_of<std::uint32_t>(array.stored())[10'000]);
  }
}

TEST(StorageArray, a_flush_asks_the_storage_to_keep_what_it_has_and_tells_when_it_does_not) {
  TestArray array({});
  ASSERT_EQ(array.view<std::uint32_t>().write(3, 4), NvmeStatus::success);
  array.array().flush();
  EXPECT_EQ(array.plan().seen(FaultPoint::sync), 1U);
  array.plan().add({.point = FaultPoint::sync, .kind = FaultKind::error, .errno_value = EDQUOT});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, EDQUOT);
}

TEST(StorageArray, no_flush_succeeds_after_one_that_the_storage_did_not_keep) {
  TestArray array({});
  const auto view = array.view<std::uint32_t>();
  ASSERT_EQ(view.write(3, 4), NvmeStatus::success);
  array.plan().add({.point = FaultPoint::sync, .kind = FaultKind::error, .errno_value = ENOSPC});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  const Failure failure = failure_of([&] { array.array().clear_failure(); });
  EXPECT_EQ(failure.errno_value, ENOSPC);
  EXPECT_NE(failure.detail.find("open the array again"), std::string::npos) << failure.detail;
  array.array().check();
  ASSERT_EQ(view.write(3, 5), NvmeStatus::success) << "accesses go on";
  EXPECT_EQ(view[3], 5U);
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  EXPECT_EQ(failure_of([&] { array.array().sync(); }).errno_value, ENOSPC);
}

TEST(StorageArray, accesses_that_found_their_line_are_hits) {
  TestArray array({.cache_bytes = std::uint64_t{256} << 10});
  const auto view = array.view<std::uint8_t>();
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < view.size(); i += short_line) {
      static_cast<void>(view[i]);
    }
  }
  array_cursor<std::uint8_t> cursor(view);
  static_cast<void>(cursor[0]);
  static_cast<void>(cursor[1]);
  const CacheCounts counts = array.array().counts();
  EXPECT_EQ(counts.misses, 128U);
  EXPECT_EQ(counts.accesses, 3U * 128 + 1) << "the cursor kept its line";
  EXPECT_EQ(counts.hits(), 2U * 128 + 1);
}

TEST(StorageArray, commands_that_wait_for_the_drive_are_in_flight) {
  TestArray array({.counter_base = UINT64_MAX - 3});
  std::uint32_t value = 0;
  const auto view = array.view<std::uint32_t>();
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 7});
  for (std::uint64_t i = 0; i < 20; ++i) {
    static_cast<void>(view.read(i * 128, value));
  }
  EXPECT_EQ(array.array().served().in_flight, 0U) << "also after failures";
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::vector<std::jthread> threads;
  for (std::uint64_t i = 0; i < 5; ++i) {
    threads.emplace_back([&view, i] {
      std::uint32_t other = 0;
      static_cast<void>(view.read((100 + i) * 128, other));
    });
  }
  while (array.array().served().in_flight != 5) {
    std::this_thread::yield();
  }
  array.plan().release();
  threads.clear();
  EXPECT_EQ(array.array().served().in_flight, 0U);
}

TEST(StorageArray, closing_ends_every_wait) {
  TestArray array({});
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::vector<std::thread> threads;
  std::atomic<int> aborted{0};
  const auto view = array.view<std::uint32_t>();
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::uint32_t value = 0;
      aborted += view.read(static_cast<std::uint64_t>(i) * 100, value) == NvmeStatus::aborted;
    });
  }
  while (array.array().counts().misses == 0) {
    std::this_thread::yield();
  }
  array.array().cache().patience.end(Ending::stopped);
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(aborted.load(), 8);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).status, Status::cancelled);
  array.plan().release();
  array.array().close();
}

TEST(StorageArray, a_controller_that_dies_ends_every_wait_and_says_why) {
  TestArray array({});
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  array.plan().add({.point = FaultPoint::reap,
                    .kind = FaultKind::error,
                    .times = UINT64_MAX,
                    .errno_value = ENOMEM});
  std::uint32_t value = 0;
  EXPECT_EQ(array.view<std::uint32_t>().read(0, value), NvmeStatus::aborted);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, ENOMEM);
  EXPECT_EQ(array.array().cache().patience.ended(), Ending::controller_died);
  EXPECT_TRUE(testing::eventually([&] { return !array.controller()->works(); }));
  TestArray later({.controller = array.controller()});
  EXPECT_EQ(later.view<std::uint32_t>().read(0, value), NvmeStatus::aborted);
  EXPECT_EQ(failure_of([&] { later.array().check(); }).errno_value, ENOMEM) << "the same reason";
}

TEST(StorageArray, commands_that_name_memory_or_blocks_of_others_are_refused) {
  TestArray array({});
  const Cache& cache = array.array().cache();
  const auto lines = reinterpret_cast<std::uint64_t>(cache.lines);
  const auto status_of = [&](const Command& command) { return answer_to(cache, command).status; };
  EXPECT_EQ(status_of(make_command(Opcode::read, {0, 1}, lines)), NvmeStatus::success);
  EXPECT_EQ(status_of(make_command(Opcode::read, {128, 1}, lines)), NvmeStatus::out_of_range);
  EXPECT_EQ(status_of(make_command(Opcode::read, {UINT64_MAX, 1}, lines)),
            NvmeStatus::out_of_range);
  EXPECT_EQ(status_of(make_command(Opcode::read, {0, 1}, lines - 1)), NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(make_command(Opcode::read, {0, 34}, lines)), NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(make_command(Opcode::read, {0, 1}, lines + 16384 + 512 - 511)),
            NvmeStatus::invalid_field);
  EXPECT_EQ(status_of(make_command(static_cast<Opcode>(0x77), {0, 1}, lines)),
            NvmeStatus::invalid_opcode);
}

TEST(StorageArray, options_that_cannot_be_are_refused) {
  for (const std::uint32_t line : {0U, 256U, 513U, 1000U, 1U << 21U}) {
    EXPECT_EQ(failure_of([&] { TestArray array({.line_bytes = line}); }).status,
              Status::invalid_argument);
  }
  EXPECT_EQ(failure_of([] { TestArray array({.cache_bytes = 511}); }).status,
            Status::invalid_argument);
  EXPECT_EQ(failure_of([] { TestArray array({.size_bytes = 0}); }).status,
            Status::invalid_argument);
  EXPECT_EQ(failure_of([] { TestArray array({.queue_depth = 12}); }).status,
            Status::invalid_argument);
}

TEST(StorageArray, without_a_queue_for_the_drive_nothing_is_left_behind) {
  const TemporaryFolder folder;
  auto plan = std::make_shared<FaultPlan>();
  const auto storage = make_faulty_storage(make_system_storage(), plan);
  const auto controller = std::make_shared<Controller>(storage, 2);
  std::vector<std::byte> memory(10'000, std::byte{9});
  StorageArrayOptions options;
  options.backing = {.memory = memory, .size_bytes = memory.size(), .name = "memory"};
  options.device = make_host_device({.memory_bytes = std::uint64_t{16} << 20});
  options.controller = controller;
  options.cache_bytes = 8192;
  plan->add({.point = FaultPoint::create_queue, .after = 1, .errno_value = EMFILE});
  EXPECT_EQ(failure_of([&] { const StorageArray array(options); }).errno_value, EMFILE)
      << "the second thread has no queue";
  const StorageArray array(options);
  const array_view<std::uint8_t> view(array.cache(), memory.size());
  EXPECT_EQ(view[9999], 9);
  array.check();
}

}  // namespace
}  // namespace hippogriff::ondemand
