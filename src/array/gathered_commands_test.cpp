// Commands of a group whose bytes lie behind each other: one request of the file.
#include "array/shared_drives.hpp"
#include "testing/array_fixture.hpp"
#include "testing/crew.hpp"
#include "testing/eventually.hpp"

#include <hippogriff/array/warp.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint32_t lanes = 8;

// So many sets that no two lanes claim in the same one, and find its lock taken; of an array that
// is larger, since else neighbours share a set.
constexpr std::uint64_t roomy = 4096 * usual_line_bytes;
constexpr std::uint64_t large = 2 * roomy;

// Of a group whose lanes fetch every `step`-th line: how many came, with the right bytes.
int fetched(TestArray& array, int first, int step) {
  const Cache& cache = array.array().cache();
  const std::vector<std::byte> stored = array.stored();
  std::atomic<int> right{0};
  Crew crew(lanes);
  crew.run([&](const Crew::Member& all) {
    const auto line = static_cast<std::uint64_t>(first + step * static_cast<int>(all.rank()));
    std::uint32_t place = 0;
    const bool has_come = fetch(cache, all, line, true, place);
    if (has_come) {
      right += std::memcmp(
                   cache.bytes_of(place), &stored[line * usual_line_bytes], usual_line_bytes) == 0;
    }
    all.meet();
    if (has_come) {
      cache.places.drop(place, false);
    }
  });
  return right.load();
}

// More than a thread may have under way, of one queue.
constexpr std::uint32_t commands = 640;
constexpr std::uint64_t room_of_thread = 256;
const TestArrayOptions many_commands{.size_bytes = 1024 * usual_line_bytes,
                                     .cache_bytes = 1024 * usual_line_bytes,
                                     .queue_depth = 1024};

// Sends a command for each of so many lines at once; releases what the plan holds when as many are
// under way as there is room for. Returns how many failed.
int failed(TestArray& array, Opcode opcode, FaultPoint point, std::uint64_t room = room_of_thread) {
  const Cache& cache = array.array().cache();
  const QueuePair pair = cache.queue(0);
  std::uint64_t first = 0;
  EXPECT_TRUE(pair.take(Alone{}, commands, first, cache.patience));
  for (std::uint32_t i = 0; i < commands; ++i) {
    pair.write(first + i,
               make_command(opcode, {i, 1}, reinterpret_cast<std::uint64_t>(cache.bytes_of(i))));
  }
  pair.mark(Alone{}, first, commands);
  EXPECT_TRUE(pair.urge(first + commands - 1));
  EXPECT_TRUE(testing::eventually([&] { return array.plan().seen(point) >= room; }));
  array.plan().release();
  int those = 0;
  for (std::uint64_t ticket = first; ticket < first + commands; ++ticket) {
    EXPECT_TRUE(pair.finish(Alone{}, ticket, 1, cache.patience));
    those += pair.outcome(ticket).status == NvmeStatus::success ? 0 : 1;
    pair.let_go(ticket);
  }
  return those;
}

// Writes a five into every `step`-th line.
void write_every(TestArray& array, std::uint64_t step) {
  const auto view = array.view<std::uint32_t>();
  for (std::uint64_t i = 0; i < view.size(); i += step * usual_line_bytes / 4) {
    ASSERT_EQ(view.write(i, 5), NvmeStatus::success);
  }
}

// Has a group write all bytes of the lines from `first` on, and flush.
NvmeStatus write_and_flush(TestArray& array, std::uint64_t first, unsigned char value) {
  const Cache& cache = array.array().cache();
  const std::vector<unsigned char> bytes(lanes * usual_line_bytes, value);
  std::atomic<std::uint32_t> status{0};
  Crew crew(lanes);
  crew.run([&](const Crew::Member& all) {
    EXPECT_EQ(write_bytes(cache, all, first * usual_line_bytes, bytes.size(), bytes.data()),
              NvmeStatus::success);
    all.meet();
    for (std::uint32_t place = 0; place < cache.places.place_count(); place += lanes) {
      set_once(reinterpret_cast<std::uint32_t&>(status),
               static_cast<std::uint32_t>(cache.flush_places(all, place)));
    }
  });
  return static_cast<NvmeStatus>(status.load());
}

TEST(GatheredCommands, of_lines_behind_each_other_read_once) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  EXPECT_EQ(fetched(array, 8, 1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 1U);
  EXPECT_EQ(array.array().served().reads, 8U);
  EXPECT_EQ(array.array().served().read_bytes, 8 * usual_line_bytes);
}

TEST(GatheredCommands, of_lines_whose_memory_is_apart_are_read_once_as_well) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy});
  EXPECT_EQ(fetched(array, 8, 1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 1U);
}

TEST(GatheredCommands, are_found_in_any_order) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  EXPECT_EQ(fetched(array, 15, -1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 1U);
}

TEST(GatheredCommands, of_lines_apart_read_each) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  EXPECT_EQ(fetched(array, 8, 2), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 8U);
}

TEST(GatheredCommands, end_where_a_stripe_does) {
  TestArray array({.size_bytes = large,
                   .cache_bytes = roomy,
                   .staged = true,
                   .files = 2,
                   .stripe_bytes = 2 * usual_line_bytes});
  EXPECT_EQ(fetched(array, 8, 1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 4U);
}

TEST(GatheredCommands, have_the_zeros_beyond_the_end_of_the_array) {
  TestArray array({.size_bytes = large - 100, .cache_bytes = roomy, .staged = true});
  const Cache& cache = array.array().cache();
  Crew crew(lanes);
  crew.run([&](const Crew::Member& all) {
    std::uint32_t place = 0;
    ASSERT_TRUE(fetch(cache, all, large / usual_line_bytes - lanes + all.rank(), true, place));
    if (all.rank() == lanes - 1) {
      const std::vector<unsigned char> zeros(100);
      EXPECT_EQ(std::memcmp(cache.bytes_of(place) + usual_line_bytes - 100, zeros.data(), 100), 0);
    }
    cache.places.drop(place, false);
  });
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 1U);
  EXPECT_EQ(array.array().served().read_bytes, 8 * usual_line_bytes - 100);
}

TEST(GatheredCommands, that_are_read_in_pieces_have_all_their_bytes) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .bytes = 700});
  array.plan().add({.point = FaultPoint::queued_read, .kind = FaultKind::shorten, .bytes = 1500});
  EXPECT_EQ(fetched(array, 0, 1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::queued_read), 2U);
}

TEST(GatheredCommands, that_fail_are_asked_for_one_by_one) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error, .times = 3});
  EXPECT_EQ(fetched(array, 0, 1), 6) << "two lines cannot be read, and those alone fail";
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 9U);
  EXPECT_EQ(array.array().served().failures, 2U);
}

TEST(GatheredCommands, that_the_queue_refuses_are_answered_one_by_one) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = 100, .bytes = 0});
  array.plan().add({.point = FaultPoint::submit, .kind = FaultKind::error, .times = 2});
  EXPECT_EQ(fetched(array, 0, 1), 7);
}

// More of them than a thread may have under way.
TEST(GatheredCommands, that_fail_by_hundreds_are_each_told_of_the_drive) {
  constexpr std::uint64_t lines = 2048;
  TestArray array({.size_bytes = lines * usual_line_bytes,
                   .cache_bytes = 8 * lines * usual_line_bytes,
                   .queue_depth = 1024});
  write_every(array, 1);
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 1000,
                    .errno_value = ENOSPC});
  EXPECT_EQ(failure_of([&] { array.array().flush(); }).errno_value, ENOSPC);
  array.plan().clear();
  array.array().clear_failure();
  array.array().flush();
  const std::vector<std::byte> stored = array.stored();
  for (std::uint64_t line = 0; line < lines; ++line) {
    ASSERT_EQ(stored[line * usual_line_bytes], std::byte{5});
  }
}

TEST(GatheredCommands, of_a_copy_that_fails_are_read_from_another_one_together) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true, .files = 2});
  array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error});
  EXPECT_EQ(fetched(array, 0, 1), 8);
  EXPECT_EQ(array.plan().seen(FaultPoint::read_cached), 2U);
  EXPECT_EQ(array.array().served().failures, 0U);
}

TEST(GatheredCommands, that_fail_wait_for_room_one_by_one) {
  constexpr std::uint32_t in_turn = 64;
  TestArray array(many_commands);
  for (std::uint32_t turn = 0; turn < commands / in_turn; ++turn) {  // all of it fails, then none
    array.plan().add({.point = FaultPoint::read_cached, .kind = FaultKind::error});
    array.plan().add({.point = FaultPoint::read_cached,
                      .kind = FaultKind::shorten,
                      .times = in_turn,
                      .bytes = 0});
  }
  array.plan().add(
      {.point = FaultPoint::queued_read, .kind = FaultKind::hold, .times = UINT64_MAX});
  // One of two threads, at a drive that may keep fewer requests.
  const std::uint64_t wanted =
      SharedDrives::requests_wanted_by(drive_of(array.array().backing())) / 2;
  EXPECT_EQ(failed(array, Opcode::read, FaultPoint::queued_read, std::min(wanted, room_of_thread)),
            0);
}

TEST(GatheredCommands, of_an_overlay_wait_for_room) {
  TestArrayOptions options = many_commands;
  options.overlaid = true;
  TestArray array(options);
  array.plan().add(
      {.point = FaultPoint::queued_write, .kind = FaultKind::hold, .times = UINT64_MAX});
  EXPECT_EQ(failed(array, Opcode::write, FaultPoint::queued_write), 0);
}

TEST(GatheredCommands, of_a_file_that_was_cut_fail_where_bytes_are_lost) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  array.plan().add({.point = FaultPoint::queued_read,
                    .kind = FaultKind::truncate_file,
                    .bytes = 3 * usual_line_bytes});
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = 1, .bytes = 0});
  const Cache& cache = array.array().cache();
  std::atomic<int> come{0};
  Crew crew(lanes);
  crew.run([&](const Crew::Member& all) {
    std::uint32_t place = 0;
    if (fetch(cache, all, all.rank(), true, place)) {
      come += all.rank() < 3 ? 1 : 100;
      cache.places.drop(place, false);
    }
  });
  EXPECT_EQ(come.load(), 3);
}

TEST(GatheredCommands, of_dirty_lines_write_once_wherever_their_places_are) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  EXPECT_EQ(write_and_flush(array, 16, 77), NvmeStatus::success);
  EXPECT_EQ(array.plan().seen(FaultPoint::queued_write), 1U);
  EXPECT_EQ(array.array().served().writes, 8U);
  EXPECT_EQ(array.array().counts().written_back, 8U);
  const std::vector<std::byte> stored = array.stored();
  for (std::uint64_t i = 16 * usual_line_bytes; i < 24 * usual_line_bytes; ++i) {
    ASSERT_EQ(stored[i], std::byte{77});
  }
}

TEST(GatheredCommands, of_which_one_cannot_be_written_leave_that_line_dirty) {
  TestArray array({.size_bytes = large, .cache_bytes = roomy, .staged = true});
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 2,
                    .errno_value = ENOSPC});
  EXPECT_EQ(write_and_flush(array, 0, 1), NvmeStatus::write_fault);
  EXPECT_EQ(failure_of([&] { array.array().check(); }).errno_value, ENOSPC);
  EXPECT_EQ(array.plan().seen(FaultPoint::queued_write), 9U + 1U) << "a flush tries again";
  EXPECT_EQ(array.array().counts().written_back, 8U);
}

// Of a file that many write to, here and there.
TEST(GatheredCommands, that_come_back_cancelled_are_moved_by_the_controller) {
  TestArray array({});
  const std::vector<std::byte> before = array.stored();
  for (const FaultPoint point : {FaultPoint::queued_read, FaultPoint::queued_write}) {
    array.plan().add({.point = point, .times = UINT64_MAX, .errno_value = ECANCELED});
  }
  array.plan().add({.point = FaultPoint::read_cached,
                    .kind = FaultKind::shorten,
                    .times = UINT64_MAX,
                    .bytes = 100});
  const auto view = array.view<std::byte>();
  EXPECT_EQ(view[300], before[300]);
  const std::vector<std::byte> lines(8 * usual_line_bytes, std::byte{7});
  ASSERT_EQ(view.write_range(Alone{}, 0, lines.size(), lines.data()), NvmeStatus::success);
  array.array().flush();
  const std::vector<std::byte> after = array.stored();
  EXPECT_TRUE(std::ranges::equal(std::span(after).first(lines.size()), lines));
  EXPECT_EQ(array.plan().seen(FaultPoint::write), 8U);
}

TEST(GatheredCommands, wait_for_the_files_lock_where_more_can_join_them) {
  constexpr std::uint64_t lines = 1024;
  TestArray array({.size_bytes = lines * usual_line_bytes,
                   .cache_bytes = 8 * lines * usual_line_bytes,
                   .queue_depth = 256});
  write_every(array, 2);
  const auto sent = [&] { return array.plan().seen(FaultPoint::queued_write); };
  ASSERT_EQ(sent(), 0U) << "the cache has room for all";
  array.plan().add(
      {.point = FaultPoint::queued_write, .kind = FaultKind::hold, .times = UINT64_MAX});
  std::jthread flush([&] { array.array().flush(); });
  EXPECT_TRUE(testing::eventually([&] { return sent() >= 4; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(sent(), 6U) << "each of two threads may have one more";
  std::uint32_t value = 0;
  EXPECT_EQ(array.view<std::uint32_t>().read(usual_line_bytes / 4, value), NvmeStatus::success)
      << "reads do not wait for them";
  array.plan().release();
  flush.join();
  EXPECT_EQ(sent(), lines / 2);
}

// By CPU threads, through a cache that is much smaller; all that a flush was told is in the file.
TEST(GatheredCommands, of_lines_that_are_written_in_order_go_together) {
  constexpr std::uint64_t lines = 4096;
  for (const bool staged : {false, true}) {
    TestArray array({.size_bytes = lines * usual_line_bytes,
                     .cache_bytes = lines * usual_line_bytes / 8,
                     .queue_depth = 256,
                     .staged = staged});
    const auto view = array.view<std::uint64_t>();
    const std::vector<std::uint64_t> numbers(usual_line_bytes / sizeof(std::uint64_t), 7);
    on_threads(2, [&](int thread) {
      const std::uint64_t half = lines / 2;
      for (std::uint64_t i = 0; i < half; ++i) {
        const std::uint64_t line = half * static_cast<std::uint64_t>(thread) + i;
        ASSERT_EQ(view.write_range(Alone{}, line * numbers.size(), numbers.size(), numbers.data()),
                  NvmeStatus::success);
      }
    });
    const std::uint64_t written = array.array().served().writes;
    EXPECT_GE(written, lines / 2);
    EXPECT_LE(array.plan().seen(FaultPoint::queued_write), written / 4);
    array.array().flush();
    EXPECT_EQ(array.array().served().writes, lines) << "each line once";
    EXPECT_EQ(elements_of<std::uint64_t>(array.stored()),
              std::vector<std::uint64_t>(lines * numbers.size(), 7));
  }
}

TEST(GatheredCommands, that_nobody_waits_for_and_fail_leave_their_lines_dirty) {
  constexpr std::uint64_t lines = 1024;
  TestArray array({.size_bytes = lines * usual_line_bytes,
                   .cache_bytes = lines * usual_line_bytes / 8,
                   .queue_depth = 256});
  array.plan().add({.point = FaultPoint::queued_write,
                    .kind = FaultKind::error,
                    .times = 2,
                    .errno_value = ENOSPC});
  write_every(array, 1);
  const Failure failure = failure_of([&] { array.array().flush(); });
  EXPECT_EQ(failure.errno_value, ENOSPC);
  EXPECT_EQ(failure.offset % usual_line_bytes, 0U);
  EXPECT_LT(failure.offset, lines * usual_line_bytes);
  EXPECT_LE(array.array().served().failures, 2U) << "the others went by themselves";
  array.array().clear_failure();
  array.array().flush();
  const std::vector<std::byte> stored = array.stored();
  for (std::uint64_t line = 0; line < lines; ++line) {
    ASSERT_EQ(stored[line * usual_line_bytes], std::byte{5});
  }
}

// The cache has a place for each line, in order, so the window of places that a thread looks
// through from the set of line 31 on has lines of both halves: 31 dirty ones together, then 32.
TEST(GatheredCommands, that_nobody_waits_for_are_32_at_once_at_most) {
  constexpr std::uint64_t lines = 64;
  constexpr std::uint64_t clean = 5;
  TestArray array({.size_bytes = lines * usual_line_bytes,
                   .cache_bytes = lines * usual_line_bytes,
                   .queue_depth = 256});
  const auto view = array.view<std::uint64_t>();
  for (std::uint64_t line = 0; line < lines; ++line) {
    if (line != clean) {
      ASSERT_EQ(view.write(line * usual_line_bytes / sizeof(std::uint64_t), 7),
                NvmeStatus::success);
    }
  }
  const Cache& cache = array.array().cache();
  const auto dirty_lines = [&] {
    std::uint64_t dirty = 0;
    for (std::uint32_t place = 0; place < cache.places.place_count(); ++place) {
      std::uint64_t line = 0;
      dirty += cache.places.is_dirty(place, line) ? 1 : 0;
    }
    return dirty;
  };
  ASSERT_EQ(dirty_lines(), lines - 1) << "nothing was written so far";
  const std::uint32_t place = cache.places.place_with(31);
  cache.write_cold(Alone{}, place, 1U << (place % cache.places.ways));
  EXPECT_EQ(dirty_lines(), lines - 1 - 32);
  array.array().flush();
  EXPECT_EQ(array.array().served().writes, lines - 1) << "each line once";
}

TEST(WriteBack, begins_while_an_array_is_written_in_order) {
  constexpr std::uint64_t size = std::uint64_t{20} << 20;
  TestArray array({.size_bytes = size, .cache_bytes = std::uint64_t{1} << 20, .line_bytes = 65536});
  const array_view<std::uint64_t> view = array.view<std::uint64_t>();
  for (std::uint64_t i = 0; i < size / sizeof(std::uint64_t); ++i) {
    ASSERT_EQ(view.write(i, i), NvmeStatus::success);
  }
  array.array().flush();
  EXPECT_GE(array.plan().seen(FaultPoint::write_back), 1U);
  EXPECT_LE(array.plan().seen(FaultPoint::write_back), 3U);
}

}  // namespace
}  // namespace hippogriff::ondemand
