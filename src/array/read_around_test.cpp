// When all around the parts that are read from a drive is read.
#include "array/read_around.hpp"

#include "testing/array_fixture.hpp"
#include "testing/eventually.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace hippogriff::ondemand {
namespace {

constexpr std::uint64_t kib = std::uint64_t{1} << 10;
constexpr std::uint64_t block = 128 * kib;

class ReadAroundTest : public ::testing::Test {
 protected:
  ReadAroundTest() : file_(open("one")), other_(open("other")) {}

  std::shared_ptr<File> open(const char* name) {
    std::ofstream(folder_.file(name)) << name;
    return make_system_storage()->open(folder_.file(name), FileAccess::read);
  }

  [[nodiscard]] bool note(std::uint64_t offset, std::uint64_t size) {
    return around_.note(*file_, {offset, size}).has_value();
  }

  TemporaryFolder folder_;
  std::shared_ptr<File> file_;
  std::shared_ptr<File> other_;
  ReadAround around_;
};

TEST_F(ReadAroundTest, takes_a_block_once_a_quarter_of_it_was_read) {
  for (std::uint64_t line = 0; line < 7; ++line) {
    EXPECT_FALSE(note(block + line * 16 * kib, 4 * kib)) << line;
  }
  const auto all = around_.note(*file_, {2 * block - 4 * kib, 4 * kib});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->offset, block);
  EXPECT_EQ(all->size, block);
  EXPECT_FALSE(note(block, 28 * kib)) << "it is on its way";
  EXPECT_TRUE(note(block + 28 * kib, 4 * kib)) << "it is cold again";
}

TEST_F(ReadAroundTest, leaves_one_long_line_alone) {
  EXPECT_FALSE(note(0, 64 * kib));
  EXPECT_FALSE(note(64 * kib, 64 * kib)) << "nothing is left";
  EXPECT_FALSE(note(block, 2 * block));
  EXPECT_FALSE(note(3 * block, 32 * kib));
  EXPECT_TRUE(note(3 * block + 64 * kib, 512));
}

TEST_F(ReadAroundTest, tells_blocks_and_files_apart) {
  EXPECT_FALSE(note(0, 28 * kib));
  EXPECT_FALSE(note(block, 28 * kib));
  EXPECT_FALSE(around_.note(*other_, {0, 28 * kib}));
  EXPECT_TRUE(note(block, 4 * kib));
}

// Two columns that are read in step, say.
TEST_F(ReadAroundTest, has_room_for_the_same_blocks_of_several_files) {
  int times = 0;
  for (std::uint64_t offset = 0; offset < 64 * block; offset += 8 * kib) {
    times += note(offset, 4 * kib) ? 1 : 0;
    times += around_.note(*other_, {offset, 4 * kib}) ? 1 : 0;
  }
  EXPECT_GE(times, 2 * 64);
}

TEST_F(ReadAroundTest, forgets_blocks_when_there_are_too_many) {
  constexpr std::uint64_t many = 100'000;
  for (std::uint64_t number = 0; number < many; ++number) {
    EXPECT_FALSE(note(number * block, 28 * kib));
  }
  int known = 0;
  for (std::uint64_t number = 0; number < many; ++number) {
    known += note(number * block, 4 * kib) ? 1 : 0;
  }
  EXPECT_LE(known, 1024);
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
  std::vector<std::uint64_t> line(4 * kib / sizeof(std::uint64_t));
  for (std::uint64_t offset = block; offset < 2 * block; offset += step * 4 * kib) {
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
  EXPECT_TRUE(is_read_around(cached, 1, 4));
  EXPECT_TRUE(is_read_around(cached, 8, 0));
  EXPECT_TRUE(is_read_around(cached, 1, 0, true)) << "what is written is not read";
  TestArrayOptions direct = cached;
  direct.io = IoKind::direct;
  if (TestArray(direct).is_direct()) {
    EXPECT_TRUE(is_read_around(direct, 1, 0));
  }
}

}  // namespace
}  // namespace hippogriff::ondemand
