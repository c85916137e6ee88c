// When all around the parts that are read from a drive is read.
#include "array/read_around.hpp"

#include "testing/array_fixture.hpp"
#include "testing/bytes.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t block = 128 * kibibyte;

class ReadAroundTest : public ::testing::Test {
 protected:
  [[nodiscard]] bool note(std::uint64_t offset, std::uint64_t size, std::size_t file = 0) {
    return around_.note(file, {offset, size}).has_value();
  }

  ReadAround around_{2, 64 * block + 100};
};

TEST_F(ReadAroundTest, takes_a_block_once_enough_of_it_was_read) {
  for (std::uint64_t line = 0; line < 5; ++line) {
    EXPECT_FALSE(note(block + line * 16 * kibibyte, 4 * kibibyte)) << line;
  }
  const auto all = around_.note(0, {2 * block - 4 * kibibyte, 4 * kibibyte});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->offset, block);
  EXPECT_EQ(all->size, block);
  EXPECT_FALSE(note(block, 20 * kibibyte)) << "it is on its way";
  EXPECT_FALSE(note(block + 20 * kibibyte, 24 * kibibyte)) << "it was read for nothing";
  EXPECT_TRUE(note(block + 44 * kibibyte, 4 * kibibyte)) << "twice as much was read again";
}

TEST_F(ReadAroundTest, leaves_one_long_line_alone) {
  EXPECT_FALSE(note(0, 64 * kibibyte));
  EXPECT_FALSE(note(64 * kibibyte, 64 * kibibyte)) << "nothing is left";
  EXPECT_FALSE(note(block, 2 * block));
  EXPECT_FALSE(note(3 * block, 32 * kibibyte));
  EXPECT_TRUE(note(3 * block + 64 * kibibyte, 512));
}

TEST_F(ReadAroundTest, counts_a_page_for_what_is_shorter) {
  for (std::uint64_t line = 0; line < 5; ++line) {
    EXPECT_FALSE(note(line * 20 * kibibyte, 512)) << line;
  }
  EXPECT_TRUE(note(100 * kibibyte, 512));
}

// Blocks of a large file that are taken at their first read, of those that a sweep comes to.
class ReadEpisodesTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t blocks = 8192;

  // Reads a page of a block.
  bool read(std::uint64_t of_block, std::uint64_t page) {
    return around_.note(0, {of_block * block + page * 4 * kibibyte, 4 * kibibyte}).has_value();
  }

  // Reads as a kernel that goes through the file in order does: six pages of each block, until all
  // of it is taken.
  std::uint64_t sweep(std::uint64_t begin, std::uint64_t end) {
    std::uint64_t at_first = 0;
    for (std::uint64_t each = begin; each < end; ++each) {
      for (std::uint64_t page = 0; page < 6; ++page) {
        if (read(each, 5 * page)) {
          at_first += page == 0 ? 1 : 0;
          break;
        }
      }
    }
    return at_first;
  }

  // How many blocks of the next so many are taken with one that is taken.
  std::uint64_t ahead_of(std::uint64_t of_block, std::uint64_t next) {
    std::uint64_t taken = 0;
    const std::uint64_t begin = (of_block + 1) * block;
    around_.take_ahead(0, {of_block * block, block}, next * block, [&](const Range& run) {
      EXPECT_GE(run.offset, begin);
      EXPECT_LE(run.end(), begin + next * block);
      for (std::uint64_t each = run.offset / block; each < run.end() / block; ++each) {
        EXPECT_FALSE(ReadEpisodes::is_sampled(each));
        EXPECT_FALSE(read(each, 0)) << "it is on its way";
        ++taken;
      }
    });
    return taken;
  }

  ReadAround around_{1, blocks * block};
};

TEST_F(ReadEpisodesTest, blocks_are_taken_at_their_first_read_where_others_were_read_all_over) {
  EXPECT_EQ(sweep(0, 400), 0U) << "too little is known";
  sweep(400, 480);
  EXPECT_EQ(sweep(480, 480 + 1600), 1500U) << "all but the sample";
}

TEST_F(ReadEpisodesTest, blocks_that_are_read_here_and_there_are_not_taken) {
  std::uint64_t taken = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    for (std::uint64_t each = 0; each < blocks; ++each) {
      taken += read(each * 4801 % blocks, round) ? 1 : 0;
    }
  }
  EXPECT_EQ(taken, 0U);
}

TEST_F(ReadEpisodesTest, a_first_look_here_and_there_does_not_hide_a_sweep) {
  for (std::uint64_t each = 0; each < blocks; ++each) {
    EXPECT_FALSE(read(each * 4801 % blocks, 31));
  }
  EXPECT_EQ(sweep(0, 160), 0U) << "too little is known of the sweep";
  EXPECT_GT(sweep(512, 1536), 700U);
}

TEST_F(ReadEpisodesTest, what_is_expected_in_vain_ends) {
  sweep(0, 1024);
  std::uint64_t in_vain = 0;
  std::uint64_t last = 0;
  for (std::uint64_t each = 1024; each < blocks; ++each) {
    if (read(1024 + (each * 4801) % (blocks - 1024), 7)) {
      ++in_vain;
      last = each - 1024;
    }
  }
  EXPECT_GT(in_vain, 0U);
  EXPECT_LT(last, ReadEpisodes::known_reads + 600);
}

TEST_F(ReadEpisodesTest, the_next_blocks_are_taken_once_and_without_the_sample) {
  EXPECT_EQ(ahead_of(8, 64), 0U) << "nothing is known";
  sweep(0, 1024);
  EXPECT_EQ(ahead_of(1024, 64), 60U);
  EXPECT_EQ(ahead_of(1024, 64), 0U) << "they are taken";
  EXPECT_EQ(ahead_of(4096, 64), 0U) << "of the block before nothing was read";
  static_cast<void>(read(blocks - 3, 0));
  EXPECT_LE(ahead_of(blocks - 2, 64), 1U) << "there is no more";
}

// Pages anywhere in a part, until blocks have enough of them, and then anywhere in another part.
TEST_F(ReadEpisodesTest, pages_that_came_together_over_time_are_no_sweep) {
  constexpr std::uint64_t pages = block / (4 * kibibyte);
  constexpr std::uint64_t reads = 16384;
  std::mt19937_64 random(5);
  for (const std::uint64_t part : {1024U, 4096U}) {
    ReadAround around{1, 16 * blocks * block};
    std::uint64_t taken = 0;
    const auto read = [&](std::uint64_t page) {
      taken += around.note(0, {page * 4 * kibibyte, 4 * kibibyte}) ? 1 : 0;
    };
    for (std::uint64_t i = 0; i < 9 * part; ++i) {
      read(random() % (part * pages));
    }
    EXPECT_GT(taken, part / 2);
    taken = 0;
    for (std::uint64_t i = 0; i < reads; ++i) {
      read((part + random() % (16 * blocks - part)) * pages + random() % pages);
    }
    EXPECT_LT(taken, reads / 100) << part;
  }
}

// A kernel that goes through a file in order, and reads so many pages elsewhere for each 2 MiB.
TEST_F(ReadEpisodesTest, a_mix_reads_little_in_vain) {
  constexpr std::uint64_t huge = std::uint64_t{1} << 20;  // blocks
  constexpr std::uint64_t pages = block / (4 * kibibyte);
  constexpr std::uint64_t alone = 5;  // times what a page takes in order
  for (const std::uint64_t scattered : {1U, 4U, 8U, 12U, 16U, 24U, 32U}) {
    ReadAround around{1, huge * block};
    std::vector<bool> cached(huge);
    std::uint64_t moved = 0;
    std::uint64_t time = 0;
    const auto take = [&](const Range& part) {
      for (std::uint64_t each = part.offset / block; each < part.end() / block; ++each) {
        moved += cached[each] ? 0 : pages;
        time += cached[each] ? 0 : pages;
        cached[each] = true;
      }
    };
    const auto read = [&](std::uint64_t page) {
      if (cached[page / pages]) {
        return;
      }
      if (const auto part = around.note(0, {page * 4 * kibibyte, 4 * kibibyte})) {
        take(*part);
        around.take_ahead(0, *part, 16 * block, take);
      } else {
        ++moved;
        time += alone;
      }
    };
    constexpr std::uint64_t streamed = 4096 * pages;
    std::mt19937_64 random(scattered);
    for (std::uint64_t page = 0; page < streamed; ++page) {
      read(page);
      if (page % (16 * pages / scattered) == 0) {
        read(streamed + random() % ((huge - 4096) * pages));
      }
    }
    // Half of what is read whole may be in vain, where as many blocks are read all over as are not.
    const bool half_and_half = scattered > 8 && scattered < 32;
    EXPECT_LT(moved, streamed * (half_and_half ? 4 : 3) / 2) << scattered << " of 512";
    // Each page of 6 of a block alone, and then all of it; those that are scattered alone.
    const std::uint64_t unknowing =
        streamed * (5 * alone + pages) / pages + streamed / pages / 16 * scattered * alone;
    EXPECT_LT(time, unknowing * 11 / 10) << scattered << " of 512";
  }
}

TEST_F(ReadAroundTest, tells_blocks_and_files_apart) {
  EXPECT_FALSE(note(0, 20 * kibibyte));
  EXPECT_FALSE(note(block, 20 * kibibyte));
  EXPECT_FALSE(note(0, 20 * kibibyte, 1));
  EXPECT_TRUE(note(block, 4 * kibibyte));
  EXPECT_TRUE(note(0, 4 * kibibyte, 1));
}

TEST_F(ReadAroundTest, takes_what_a_file_has_of_its_last_block) {
  EXPECT_FALSE(note(64 * block, 50));
  const auto last = around_.note(0, {64 * block + 50, 50});
  EXPECT_FALSE(last) << "nothing is left";
}

// However much was read elsewhere meanwhile.
TEST_F(ReadAroundTest, forgets_no_block) {
  for (std::uint64_t round = 0; round < 5; ++round) {
    for (std::uint64_t number = 0; number < 64; ++number) {
      EXPECT_FALSE(note(number * block + round * 8 * kibibyte, 4 * kibibyte));
    }
  }
  for (std::uint64_t number = 0; number < 64; ++number) {
    EXPECT_TRUE(note(number * block + 64 * kibibyte, 4 * kibibyte));
  }
}

TEST(ReadAroundOfALongFile, has_longer_blocks) {
  constexpr std::uint64_t tebibyte = std::uint64_t{1} << 40;
  ReadAround around(1, tebibyte);
  std::optional<Range> found;
  std::uint64_t pages = 0;
  while (!found && pages < 1000) {
    found = around.note(0, {tebibyte / 2 + 4 * kibibyte * pages++, 4 * kibibyte});
  }
  ASSERT_TRUE(found);
  EXPECT_GT(found->size, std::uint64_t{512} << 10);
  EXPECT_EQ(pages, (found->size + 4 * kibibyte - 1) / (4 * kibibyte) * 3 / 16);
}

// However often it comes back cold.
TEST_F(ReadAroundTest, takes_a_block_less_and_less_often) {
  std::vector<int> reads;
  int since = 0;
  for (int line = 0; line < 6 * 4095; ++line) {
    ++since;
    if (note(0, 4 * kibibyte)) {
      reads.push_back(std::exchange(since, 0));
    }
  }
  ASSERT_EQ(reads.size(), 12U);
  for (std::size_t time = 0; time < reads.size(); ++time) {
    EXPECT_EQ(reads[time], 6 << time);
  }
}

// Reads that come at once are counted once each: a block is taken as often as they are enough for.
TEST(ReadAroundByThreads, takes_no_block_twice) {
  ReadAround around(1, block);
  std::atomic<int> taken{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int line = 0; line < 6 * 1024; ++line) {
        taken += around.note(0, {0, 4 * kibibyte}) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(taken, 12) << "6 * (1 + 2 + ... + 2048) of 24576";
}

// Moves each `step`-th of the lines of 4 KiB of a block of which nothing is in the page cache: has
// all of it been read so many times, at least?
bool is_read_around(const TestArrayOptions& options,
                    std::uint64_t step,
                    std::uint64_t times,
                    bool writes = false) {
  TestArray array(options);
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
  const std::vector<std::byte> stored = array.stored();
  const array_view<std::uint64_t> view = array.view<std::uint64_t>();
  std::vector<std::uint64_t> line(4 * kibibyte / sizeof(std::uint64_t));
  for (std::uint64_t offset = block; offset < 2 * block; offset += step * 4 * kibibyte) {
    const std::uint64_t first = offset / sizeof(std::uint64_t);
    if (writes) {
      EXPECT_EQ(view.write_range(Alone{}, first, line.size(), line.data()), NvmeStatus::success);
    } else {
      EXPECT_EQ(view.read(first, line[0]), NvmeStatus::success);
      EXPECT_EQ(std::memcmp(line.data(), &stored[offset], sizeof(std::uint64_t)), 0);
    }
  }
  array.array().flush();
  const auto seen = [&] { return array.plan().seen(FaultPoint::read_ahead); };
  if (times != 0) {
    EXPECT_TRUE(testing::eventually([&] { return seen() >= times; }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return seen() == times;
}

TEST(ReadAround, of_an_array_is_where_lines_are_close_together) {
  const TestArrayOptions cached{.size_bytes = 4 * block, .cache_bytes = block, .line_bytes = 4096};
  EXPECT_TRUE(is_read_around(cached, 4, 1));
  EXPECT_TRUE(is_read_around(cached, 1, 2));
  EXPECT_TRUE(is_read_around(cached, 8, 0)) << "four are not enough";
  EXPECT_TRUE(is_read_around(cached, 1, 0, true)) << "what is written is not read";
  TestArrayOptions direct = cached;
  direct.io = IoKind::direct;
  if (TestArray(direct).is_direct()) {
    EXPECT_TRUE(is_read_around(direct, 1, 0));
  }
}

}  // namespace
}  // namespace hippogriff::ondemand
