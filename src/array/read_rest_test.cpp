// When all that is left of a cold file is read, and until when.
#include "array/read_around.hpp"
#include "testing/array_fixture.hpp"
#include "testing/bytes.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t rest_block = 128 * kibibyte;
constexpr std::uint64_t rest_page = 4 * kibibyte;
constexpr std::uint64_t rest_block_pages = rest_block / rest_page;

class ReadRestTest : public ::testing::Test {
 protected:
  static constexpr std::uint64_t blocks = 1024;
  static constexpr std::uint64_t pages = blocks * rest_block_pages;

  // Reads a page, whether it is there or not: whether all of its block is read with it.
  bool read(std::uint64_t page) {
    return around_.note(0, {page * rest_page, rest_page}).has_value();
  }

  // Reads one page of each of so many blocks, from a block on.
  void read_first_pages(std::uint64_t count, std::uint64_t first_block = 0) {
    for (std::uint64_t i = 0; i < count; ++i) {
      read((first_block + i) % blocks * rest_block_pages + i / blocks);
    }
  }

  std::vector<Range> take(std::uint64_t bytes) {
    std::vector<Range> runs;
    around_.take_rest(0, bytes, [&](const Range& run) { runs.push_back(run); });
    return runs;
  }

  ReadAround around_{2, blocks * rest_block};
};

TEST_F(ReadRestTest, begins_when_half_of_its_time_was_spent) {
  constexpr std::uint64_t enough = pages / 2 / 5 + 1;  // a page alone takes as long as 5
  read_first_pages(enough - 1);
  EXPECT_FALSE(around_.rest().begin(0));
  read_first_pages(1, 7);
  EXPECT_TRUE(around_.rest().begin(0));
  EXPECT_FALSE(around_.rest().begin(0)) << "it is under way";
  EXPECT_FALSE(around_.rest().begin(1)) << "of the other file nothing was read";
}

TEST_F(ReadRestTest, takes_each_block_once) {
  for (std::uint64_t page = 0; page < 6; ++page) {
    EXPECT_EQ(read(3 * rest_block_pages + page), page == 5);
  }
  EXPECT_EQ(around_.rest_bytes(1), (blocks - 1) * rest_block);
  EXPECT_EQ(take(8 * rest_block),
            (std::vector<Range>{{0, 3 * rest_block}, {4 * rest_block, 5 * rest_block}}));
  std::uint64_t taken = 9;
  for (std::vector<Range> runs = take(16 * rest_block); !runs.empty();
       runs = take(16 * rest_block)) {
    EXPECT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0].offset, taken * rest_block);
    taken += runs[0].size / rest_block;
  }
  EXPECT_EQ(taken, blocks);
  EXPECT_EQ(around_.rest_bytes(1), 0U);
}

TEST_F(ReadRestTest, the_next_read_of_a_block_takes_it_meanwhile) {
  read_first_pages(pages / 8);
  ASSERT_TRUE(around_.rest().begin(0));
  EXPECT_TRUE(read(500 * rest_block_pages + 9));
  EXPECT_FALSE(read(500 * rest_block_pages + 10)) << "it is on its way";
  around_.rest().pause(0);
  EXPECT_FALSE(read(501 * rest_block_pages + 9));
  EXPECT_TRUE(around_.rest().begin(0)) << "as soon as it is read again";
  around_.rest().end(0);
  EXPECT_FALSE(around_.rest().begin(0));
  EXPECT_FALSE(read(502 * rest_block_pages + 9));
}

TEST(ReadRestInOrder, hardly_begins) {
  constexpr std::uint64_t blocks = 8192;
  for (std::uint64_t part = rest_page; part <= mebibyte; part *= 2) {
    ReadAround around(1, blocks * rest_block);
    std::uint64_t offset = 0;
    while (offset < blocks * rest_block && !around.rest().begin(0)) {
      const auto whole = around.note(0, {offset, part});
      offset = whole ? whole->end() : offset + part;
    }
    EXPECT_GE(offset, blocks * rest_block * 3 / 4) << part;
  }
}

TEST(ReadRestOfAShortFile, is_read_as_it_comes) {
  ReadAround around(1, 63 * rest_block);
  for (std::uint64_t block = 0; block < 63; ++block) {
    for (std::uint64_t page = 0; page < 5; ++page) {
      static_cast<void>(around.note(0, {block * rest_block + page * rest_page, rest_page}));
    }
  }
  EXPECT_FALSE(around.rest().begin(0)) << "less than 8 MiB";
}

// Pages anywhere in a file, in the time that a drive takes for them: `alone` times what one takes
// in order, half of the drive for who reads the rest.
class TimeOfReads {
 public:
  TimeOfReads(std::uint64_t blocks, double alone, bool with_rest)
      : around_(1, blocks * rest_block),
        cached_(blocks * rest_block_pages),
        alone_(alone),
        with_rest_(with_rest) {}

  void read(std::uint64_t page) {
    if (cached_[page]) {
      return;
    }
    double took = alone_;
    if (const auto part = around_.note(0, {page * rest_page, rest_page})) {
      took = fill(*part);
    }
    cached_[page] = true;
    time_ += took;
    under_way_ = under_way_ || (with_rest_ && around_.rest().begin(0));
    while (under_way_ && took > 0) {
      const double before = took;
      around_.take_rest(0, rest_block, [&](const Range& run) {
        const double its = fill(run);
        time_ += its;
        took -= its;
      });
      under_way_ = took < before;
    }
  }

  [[nodiscard]] double time() const { return time_; }

 private:
  double fill(const Range& part) {
    double pages = 0;
    for (std::uint64_t page = part.offset / rest_page; page < part.end() / rest_page; ++page) {
      pages += cached_[page] ? 0 : 1;
      cached_[page] = true;
    }
    return pages;
  }

  ReadAround around_;
  std::vector<bool> cached_;
  double alone_;
  bool with_rest_;
  bool under_way_ = false;
  double time_ = 0;
};

TEST(ReadRestInTime, is_little_in_vain_and_much_in_use) {
  constexpr std::uint64_t blocks = 8192;
  constexpr std::uint64_t pages = blocks * rest_block_pages;
  for (const double alone : {5.0, 11.0}) {
    for (const double part : {0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0}) {
      TimeOfReads with(blocks, alone, true);
      TimeOfReads without(blocks, alone, false);
      std::mt19937_64 random(7);
      for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(part * pages); ++i) {
        const std::uint64_t page = random() % pages;
        with.read(page);
        without.read(page);
      }
      const auto all = static_cast<double>(pages);
      EXPECT_LT(with.time(), 2 * all) << alone << ' ' << part;
      EXPECT_LT(with.time(), without.time() + all) << "in vain, once: " << alone << ' ' << part;
      if (part < 0.05) {
        EXPECT_EQ(with.time(), without.time()) << "it never begins: " << alone << ' ' << part;
      }
      if (part >= 0.5) {
        EXPECT_LT(with.time(), 0.9 * without.time()) << alone << ' ' << part;
      }
    }
  }
}

// An array of which nothing is in the page cache, in lines of a page.
class ReadRestOfArray : public ::testing::Test {
 protected:
  static constexpr std::uint64_t size_bytes = 32 * mebibyte;
  static constexpr std::uint64_t steps = 16;  // of 2 MiB

  ReadRestOfArray() {
    array_.plan().add(
        {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
  }

  // One page of each block, then the next one.
  void read_pages(std::uint64_t count) {
    const array_view<std::uint64_t> view = array_.view<std::uint64_t>();
    for (std::uint64_t i = 0; i < count; ++i, ++next_) {
      const std::uint64_t offset =
          next_ % (size_bytes / rest_block) * rest_block +
          next_ / (size_bytes / rest_block) * 5 % rest_block_pages * rest_page;
      std::uint64_t element = 0;
      ASSERT_EQ(view.read(offset / sizeof element, element), NvmeStatus::success);
      ASSERT_EQ(std::memcmp(&element, &stored_[offset], sizeof element), 0) << offset;
    }
  }

  void delay_reads(std::chrono::milliseconds each) {
    array_.plan().add(
        {.point = FaultPoint::read, .kind = FaultKind::delay, .times = UINT64_MAX, .delay = each});
  }

  void read_until_it_waits() {
    EXPECT_TRUE(testing::eventually([&] {
      read_pages(1);
      return waits() != 0;
    }));
  }

  [[nodiscard]] std::uint64_t seen() { return array_.plan().seen(FaultPoint::read_ahead); }

  // Pieces of steps that are waited for, 32 each.
  [[nodiscard]] std::uint64_t waits() { return array_.plan().seen(FaultPoint::read); }

  TestArray array_{
      {.size_bytes = size_bytes, .cache_bytes = mebibyte, .line_bytes = rest_page, .copiers = 0}};
  std::vector<std::byte> stored_ = array_.stored();
  std::uint64_t next_ = 0;
};

TEST_F(ReadRestOfArray, is_read_while_the_array_is) {
  read_pages(800);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(seen(), 0U) << "half of the time needs 820";
  read_pages(30);
  EXPECT_TRUE(testing::eventually([&] {
    read_pages(1);
    return seen() >= steps;
  }));
  EXPECT_LE(seen(), 2 * steps + 256) << "each block once";
}

TEST_F(ReadRestOfArray, pauses_when_nobody_reads) {
  delay_reads(std::chrono::milliseconds(2));  // a step takes 64
  read_pages(821);
  EXPECT_TRUE(testing::eventually([&] { return seen() != 0; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const std::uint64_t then = seen();
  EXPECT_LT(then, steps / 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_EQ(seen(), then);
  EXPECT_TRUE(testing::eventually([&] {
    read_pages(1);
    return seen() >= steps;
  }));
}

TEST_F(ReadRestOfArray, ends_with_an_error_that_only_who_reads_there_is_told) {
  array_.plan().add(
      {.point = FaultPoint::read, .kind = FaultKind::error, .after = 3, .times = UINT64_MAX});
  read_pages(830);
  EXPECT_TRUE(testing::eventually([&] {
    read_pages(1);
    return waits() == 4;
  }));
  read_pages(830);
  EXPECT_EQ(waits(), 4U);
}

TEST_F(ReadRestOfArray, is_left_while_others_are_at_the_drive) {
  SharedDrive* const drive = array_.drive();
  if (drive == nullptr) {
    GTEST_SKIP() << "on no drive";
  }
  delay_reads(std::chrono::milliseconds(2));
  drive->share = drive_share_min;
  read_pages(1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(waits(), 0U);
  drive->share = drive_share_max;
  read_until_it_waits();
  drive->share = drive_share_min;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the step that is under way
  const std::uint64_t then = waits();
  for (int i = 0; i < 30; ++i) {
    read_pages(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(waits(), then);
}

TEST_F(ReadRestOfArray, ends_with_the_array) {
  delay_reads(std::chrono::milliseconds(30));  // a step takes about a second
  read_pages(830);
  read_until_it_waits();
  array_.array().close();
  const std::uint64_t then = waits();
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(waits(), then) << "close() waited for what was under way";
}

TEST(ReadRestOfCopies, is_left) {
  TestArray array({.size_bytes = 32 * mebibyte,
                   .cache_bytes = mebibyte,
                   .line_bytes = rest_page,
                   .copiers = 0,
                   .files = 2});
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
  const array_view<std::uint64_t> view = array.view<std::uint64_t>();
  for (std::uint64_t page = 0; page < 2000; ++page) {
    std::uint64_t element = 0;
    ASSERT_EQ(view.read((page % 256 * rest_block + page / 256 * rest_page) / 8, element),
              NvmeStatus::success);
  }
  EXPECT_EQ(array.plan().seen(FaultPoint::read), 0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
