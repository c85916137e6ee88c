// When all around the parts that are read from a drive is read.
#include "array/read_around.hpp"

#include "testing/array_fixture.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
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
  EXPECT_FALSE(note(block + 4 * kib, 4 * kib)) << "it is on its way";
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
  EXPECT_FALSE(note(1024 * block, 28 * kib)) << "in the place of another";
  EXPECT_FALSE(note(0, 4 * kib)) << "which is forgotten";
  EXPECT_TRUE(note(block, 4 * kib));
}

// How often more is read than the lines of 4 KiB that are wanted, each `step`-th of a block of
// which nothing is in the page cache.
std::uint64_t times_read_around(std::uint64_t step, IoKind io) {
  constexpr std::uint64_t line = 4 * kib;
  TestArray array({.size_bytes = 4 * block, .cache_bytes = block, .line_bytes = line, .io = io});
  array.plan().add(
      {.point = FaultPoint::read_cached, .kind = FaultKind::shorten, .times = UINT64_MAX});
  const std::vector<std::byte> stored = array.stored();
  const array_view<std::uint64_t> view = array.view<std::uint64_t>();
  for (std::uint64_t offset = block; offset < 2 * block; offset += step * line) {
    std::uint64_t value = 0;
    EXPECT_EQ(view.read(offset / sizeof value, value), NvmeStatus::success);
    EXPECT_EQ(std::memcmp(&value, &stored[offset], sizeof value), 0);
  }
  return array.plan().seen(FaultPoint::read_ahead);
}

TEST(ReadAround, of_an_array_is_where_lines_are_close_together) {
  EXPECT_EQ(times_read_around(4, IoKind::cached), 1U);
  EXPECT_EQ(times_read_around(1, IoKind::cached), 1U);
  EXPECT_EQ(times_read_around(8, IoKind::cached), 0U);
  EXPECT_EQ(times_read_around(1, IoKind::direct), 0U);
}

}  // namespace
}  // namespace hippogriff::ondemand
