// Tiles: what kernels find in them, whenever they run, and what is read for that.
#include "workloads/arrays/tiles.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <stdexcept>

namespace {

using Number = std::uint64_t;

// Kernels that run as late as they may: when somebody waits for them.
class LazyStream {
 public:
  void put(std::function<void()> kernel) { kernels_.push_back(std::move(kernel)); }

  [[nodiscard]] std::size_t put_count() const { return kernels_.size(); }

  [[nodiscard]] std::size_t done_count() const { return done_; }

  void run_until(std::size_t count) {
    for (; done_ < count; ++done_) {
      kernels_[done_]();
    }
  }

 private:
  std::vector<std::function<void()>> kernels_;
  std::size_t done_ = 0;
};

class LazyMark final : public KernelMark {
 public:
  explicit LazyMark(LazyStream& stream) : stream_(stream) {}

  void set() override { behind_ = stream_.put_count(); }

  bool passed() override { return behind_ <= stream_.done_count(); }

  void wait() override { stream_.run_until(behind_); }

 private:
  LazyStream& stream_;
  std::size_t behind_ = 0;
};

class TilesTest : public testing::Test {
 public:
  ~TilesTest() override { std::filesystem::remove_all(folder_); }

  TilesTest(const TilesTest&) = delete;
  TilesTest& operator=(const TilesTest&) = delete;

 protected:
  static constexpr std::uint64_t number_count = 1003;
  static constexpr std::uint64_t offset_bytes = 24;

  TilesTest() {
    for (std::uint64_t part = 0; part < 2; ++part) {
      const File file(path(part), O_WRONLY | O_CREAT | O_TRUNC);
      std::vector<Number> numbers(number_count);
      for (std::uint64_t i = 0; i < number_count; ++i) {
        numbers[i] = expected(part, i);
      }
      file.write(numbers.data(), numbers.size() * sizeof(Number), offset_bytes);
    }
  }

  static Number expected(std::uint64_t part, std::uint64_t i) { return i * 2 + part; }

  [[nodiscard]] std::string path(std::uint64_t part) const {
    return folder_ + "/" + std::to_string(part);
  }

  [[nodiscard]] Tiles tiles(const TileShape& shape) {
    const Section part{offset_bytes, number_count * sizeof(Number)};
    return {{{first_, part}, {second_, part}},
            shape,
            [&] { return std::make_unique<LazyMark>(stream_); },
            "host"};
  }

  // A kernel for each tile, which sees whether all is in it. Which elements these are is told.
  std::vector<std::uint64_t> through(Tiles& tiles, const std::vector<std::uint64_t>& order) {
    std::vector<std::uint64_t> begins;
    tiles.through(order, [&](const Tile& tile) {
      begins.push_back(tile.elements.begin);
      stream_.put([this, tile] { look_at(tile); });
    });
    return begins;
  }

  void look_at(const Tile& tile) {
    for (std::uint64_t i = tile.elements.begin; i < tile.elements.end; ++i) {
      const std::uint64_t at = i - tile.elements.begin;
      const bool right =
          tile.part<Number>(0)[at] == expected(0, i) && tile.part<Number>(1)[at] == expected(1, i);
      wrong_ += right ? 0 : 1;
      ++seen_;
    }
  }

  void run_what_is_left() { stream_.run_until(stream_.put_count()); }

  LazyStream stream_;
  std::uint64_t wrong_ = 0;
  std::uint64_t seen_ = 0;

 private:
  hippogriff::Runtime runtime_;
  std::string folder_ = [] {
    std::string name = testing::TempDir() + "tiles.XXXXXX";
    return std::string(mkdtemp(name.data()));
  }();
  File first_{path(0), O_RDONLY | O_CREAT};
  File second_{path(1), O_RDONLY | O_CREAT};
};

TEST_F(TilesTest, kernels_that_run_late_find_their_tile) {
  constexpr unsigned seed = 7;
  std::mt19937 random(seed);
  for (const std::uint64_t slots : {2U, 3U, 5U, 9U}) {
    Tiles all = tiles({100, slots, sizeof(Number)});
    ASSERT_EQ(all.count(), 11U);
    for (int pass = 0; pass < 40; ++pass) {
      std::vector<std::uint64_t> order = all.all(false);
      std::shuffle(order.begin(), order.end(), random);
      order.resize(random() % (order.size() + 1));
      seen_ = 0;
      const std::vector<std::uint64_t> begins = through(all, order);
      run_what_is_left();
      std::uint64_t numbers = 0;
      for (const std::uint64_t tile : order) {
        numbers += std::min<std::uint64_t>(100, number_count - tile * 100);
      }
      ASSERT_EQ(seen_, numbers);
      ASSERT_EQ(wrong_, 0U) << slots << " slots, pass " << pass << ", seed " << seed;
      ASSERT_EQ(begins.size(), order.size());
      for (std::size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(begins[i], order[i] * 100);
      }
    }
  }
}

TEST_F(TilesTest, passes_back_and_forth_find_the_last_tiles_in_memory) {
  Tiles all = tiles({100, 4, sizeof(Number)});
  const std::uint64_t row = 2 * sizeof(Number);
  through(all, all.all(false));
  EXPECT_EQ(all.cost().read_bytes, number_count * row);
  through(all, all.all(true));
  EXPECT_EQ(all.cost().read_bytes, (2 * number_count - 303) * row);  // the last has three numbers
  through(all, all.all(false));
  EXPECT_EQ(all.cost().read_bytes, (3 * number_count - 303 - 400) * row);
  EXPECT_EQ(all.cost().commands, 2U * (11 + 7 + 7));
}

TEST_F(TilesTest, what_finds_room_is_read_once) {
  for (const std::uint64_t elements : {100U, 1003U, 5000U}) {
    Tiles all = tiles({elements, 50, sizeof(Number)});
    for (int pass = 0; pass < 3; ++pass) {
      through(all, all.all(pass == 1));
    }
    run_what_is_left();
    EXPECT_EQ(all.cost().read_bytes, number_count * 2 * sizeof(Number));
  }
  EXPECT_EQ(wrong_, 0U);
}

TEST_F(TilesTest, a_file_that_ends_early_is_an_error) {
  std::filesystem::resize_file(path(1), 4000);
  Tiles all = tiles({100, 4, sizeof(Number)});
  EXPECT_THROW(through(all, all.all(false)), hippogriff::TransferError);
}

TEST_F(TilesTest, a_pass_that_was_broken_off_does_not_spoil_the_next) {
  Tiles all = tiles({100, 4, sizeof(Number)});
  std::filesystem::resize_file(path(1), 4000);  // within the third tile
  EXPECT_THROW(through(all, {6, 7, 8}), hippogriff::TransferError);
  const File file(path(1), O_WRONLY);
  std::vector<Number> numbers(number_count);
  for (std::uint64_t i = 0; i < number_count; ++i) {
    numbers[i] = expected(1, i);
  }
  file.write(numbers.data(), numbers.size() * sizeof(Number), offset_bytes);
  through(all, {8, 7, 6});
  run_what_is_left();
  EXPECT_EQ(seen_, 300U);
  const auto fail = [](const Tile&) {
    throw std::runtime_error("a kernel that cannot be started");
  };
  EXPECT_THROW(all.through({0, 1, 2, 3, 4, 5}, fail), std::runtime_error);
  through(all, {9, 10, 4});
  run_what_is_left();
  EXPECT_EQ(seen_, 300U + 100 + 3 + 100);
  EXPECT_EQ(wrong_, 0U);
}

TEST_F(TilesTest, what_cannot_be_gone_through_is_refused) {
  EXPECT_THROW(static_cast<void>(tiles({100, 1, sizeof(Number)})), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(tiles({0, 4, sizeof(Number)})), std::invalid_argument);
  Tiles all = tiles({100, 4, sizeof(Number)});
  EXPECT_THROW(through(all, {1, 2, 1}), std::invalid_argument);
  EXPECT_THROW(through(all, {11}), std::invalid_argument);
}

TEST(TileShape, elements_may_be_longer_than_a_page) {
  const TileShape shape = tile_shape({1U << 20U, 1U << 20U}, 5000, 1);
  EXPECT_EQ(shape.elements, (1U << 18U) / 5000);
}

TEST(TileShape, there_are_not_more_tiles_than_can_be_looked_at) {
  EXPECT_EQ(tile_shape({1U << 30U, 8}, 8, 1).slots, 1024U);
}

TEST(TileShape, tiles_stay_within_the_cache) {
  for (const std::uint64_t cache : {48U, 512U, 4096U, 100'000U, 1U << 20U, 1U << 30U}) {
    for (const std::uint64_t most : {1U, 5000U, 32U << 20U}) {
      for (const std::uint64_t parts : {1U, 6U}) {
        const TileShape shape = tile_shape({cache, most}, sizeof(double), parts);
        const std::uint64_t row = parts * sizeof(double);
        EXPECT_GE(shape.elements, 1U);
        EXPECT_GE(shape.slots, 2U);
        EXPECT_LE(shape.slots * shape.elements * row, std::max(cache, 2 * row));
        EXPECT_LE(shape.elements * row, std::max(most, row));
      }
    }
  }
  EXPECT_EQ(tile_shape({64U << 20U, 32U << 20U}, 4, 1).elements, 4U << 20U);
  EXPECT_EQ(tile_shape({1U << 30U, 32U << 20U}, 8, 6).elements % 512, 0U);
}

}  // namespace
