// Checksums of what lands in pieces of all sizes, in any order and by several threads, against
// hashing each block afterwards.
#include "checksum/landing_checksums.hpp"

#include "base/error.hpp"
#include "checksum/xxh3_host.hpp"
#include "testing/bytes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

namespace hippogriff {
namespace {

// Parts of a file, with holes, in memory that begins anywhere.
class Landing {
 public:
  explicit Landing(std::uint64_t seed) : random_(seed) {
    block_bytes_ = 1 + random_() % 5000;
    std::uint64_t at = random_() % 3000;
    const std::size_t count = random_() % 40;
    for (std::size_t index = 0; index < count; ++index) {
      const std::uint64_t size = random_() % 3 == 0 ? random_() % 20'000 : random_() % 300;
      parts_.push_back({at, {{}, size}});
      at += size + (random_() % 2 == 0 ? 0 : random_() % 500);
    }
    file_bytes_ = at + random_() % 100;
    file_ = random_bytes(file_bytes_, seed);
    memory_.resize(file_bytes_ + count);
    std::uint64_t to = 0;
    for (LandingPart& part : parts_) {
      part.memory.address = {reinterpret_cast<std::uintptr_t>(memory_.data() + to)};
      to += part.memory.size_bytes + 1;
    }
    for (const LandingPart& part : parts_) {
      for (std::uint64_t block = 0; block < part.memory.size_bytes; block += block_bytes_) {
        expected_.push_back(xxh3_of(file_.data() + part.offset + block,
                                    std::min(block_bytes_, part.memory.size_bytes - block)));
      }
    }
    found_.resize(expected_.size());
  }

  void run(unsigned threads) {
    LandingChecksums checksums(parts_, block_bytes_, found_);
    const std::vector<Range> pieces = cut();
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t index = next++; index < pieces.size(); index = next++) {
        fill(pieces[index]);
        checksums.landed(pieces[index]);
      }
    };
    std::vector<std::jthread> others;
    for (unsigned number = 1; number < threads; ++number) {
      others.emplace_back(work);
    }
    work();
    others.clear();
    EXPECT_EQ(found_, expected_);
  }

  std::vector<LandingPart> parts_;
  std::vector<std::uint64_t> found_;
  std::uint64_t block_bytes_ = 0;

 private:
  std::vector<Range> cut() {
    std::vector<Range> pieces;
    const std::uint64_t most = 1 + random_() % 30'000;
    for (std::uint64_t at = 0; at < file_bytes_;) {
      const std::uint64_t size = std::min(1 + random_() % most, file_bytes_ - at);
      pieces.push_back({at, size});
      at += size;
    }
    std::shuffle(pieces.begin(), pieces.end(), random_);
    return pieces;
  }

  void fill(Range piece) {
    for (const LandingPart& part : parts_) {
      const std::uint64_t begin = std::max(piece.offset, part.offset);
      const std::uint64_t end = std::min(piece.end(), part.offset + part.memory.size_bytes);
      if (begin < end) {
        const std::uint64_t to = part.memory.address.value - base() + (begin - part.offset);
        std::copy_n(file_.begin() + static_cast<std::ptrdiff_t>(begin),
                    end - begin,
                    memory_.begin() + static_cast<std::ptrdiff_t>(to));
      }
    }
  }

  [[nodiscard]] std::uint64_t base() const {
    return reinterpret_cast<std::uintptr_t>(memory_.data());
  }

  std::mt19937_64 random_;
  std::uint64_t file_bytes_ = 0;
  std::vector<std::byte> file_;
  std::vector<std::byte> memory_;
  std::vector<std::uint64_t> expected_;
};

TEST(LandingChecksumsTest, are_those_of_the_blocks_whatever_the_pieces) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    Landing(seed).run(1);
  }
}

TEST(LandingChecksumsTest, steps_end_where_blocks_do_and_never_stand_still) {
  std::vector<std::uint64_t> found(6);
  // Blocks end at 1100, 1200, 1250 and 2100, 2200, 2201.
  const LandingChecksums checksums({{1000, {{}, 250}}, {2000, {{}, 201}}}, 100, found);
  EXPECT_EQ(checksums.step_bytes(1000, 250), 200U);
  EXPECT_EQ(checksums.step_bytes(1000, 100), 100U);
  EXPECT_EQ(checksums.step_bytes(1001, 100), 99U);
  EXPECT_EQ(checksums.step_bytes(1099, 1), 1U);
  EXPECT_EQ(checksums.step_bytes(1001, 98), 98U);  // No block ends there.
  EXPECT_EQ(checksums.step_bytes(2150, 1000), 950U);
  for (const std::uint64_t outside : {0, 999, 1250, 1999, 2201, 5000}) {
    EXPECT_EQ(checksums.step_bytes(outside, 77), 77U) << outside;
  }
}

TEST(LandingChecksumsTest, the_rest_of_a_block_ends_with_it) {
  std::vector<std::uint64_t> found(6);
  // Blocks end at 1100, 1200, 1250 and 2100, 2200, 2201.
  const LandingChecksums checksums({{1000, {{}, 250}}, {2000, {{}, 201}}}, 100, found);
  EXPECT_EQ(checksums.rest_of_block(1001), 99U);
  EXPECT_EQ(checksums.rest_of_block(1099), 1U);
  EXPECT_EQ(checksums.rest_of_block(1220), 30U) << "the last, shorter block";
  EXPECT_EQ(checksums.rest_of_block(2150), 50U);
  for (const std::uint64_t none : {0, 999, 1000, 1100, 1200, 1250, 1999, 2000, 2200, 2201, 5000}) {
    EXPECT_EQ(checksums.rest_of_block(none), 0U) << none;
  }
  std::vector<std::uint64_t> one(1);
  const LandingChecksums whole({{1000, {{}, 250}}}, UINT64_MAX, one);
  EXPECT_EQ(whole.rest_of_block(1001), 249U);
}

TEST(LandingChecksumsTest, pieces_of_whole_blocks_end_where_one_does_and_never_stand_still) {
  std::vector<std::uint64_t> found(6);
  // Blocks end at 1100, 1200, 1250 and 2100, 2200, 2201; parts begin at 1000 and 2000.
  const LandingChecksums checksums({{1000, {{}, 250}}, {2000, {{}, 201}}}, 100, found);
  const auto end_of = [&](std::uint64_t begin, std::uint64_t end) {
    return begin + checksums.whole_blocks_of({begin, end - begin});
  };
  EXPECT_EQ(end_of(1000, 1249), 1200U);
  EXPECT_EQ(end_of(1150, 1200), 1200U);
  EXPECT_EQ(end_of(1201, 1249), 1249U) << "no block ends there";
  EXPECT_EQ(end_of(1001, 1250), 1250U) << "the last, shorter block";
  EXPECT_EQ(end_of(0, 1050), 1000U) << "what belongs to no part comes before";
  EXPECT_EQ(end_of(1000, 1050), 1050U);
  EXPECT_EQ(end_of(1050, 1700), 1700U) << "between parts";
  EXPECT_EQ(end_of(1050, 2099), 2000U);
  EXPECT_EQ(end_of(1050, 2150), 2100U);
  EXPECT_EQ(end_of(1050, 2201), 2201U);
  EXPECT_EQ(end_of(1050, 9999), 9999U);
}

TEST(LandingChecksumsTest, are_right_where_threads_share_blocks) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Landing(seed).run(4);
  }
}

TEST(LandingChecksumsTest, wrong_parts_are_refused) {
  std::vector<std::byte> memory(100);
  std::vector<std::uint64_t> found(2);
  const MemoryPart part{{reinterpret_cast<std::uintptr_t>(memory.data())}, 50};
  const auto make = [&](std::vector<LandingPart> parts, std::uint64_t block_bytes) {
    LandingChecksums(std::move(parts), block_bytes, found);
  };
  EXPECT_NO_THROW(make({{0, part}, {50, part}}, 50));
  EXPECT_THROW(make({{0, part}, {49, part}}, 50), Error) << "they overlap in the file";
  EXPECT_THROW(make({{50, part}, {0, part}}, 50), Error);
  EXPECT_THROW(make({{0, part}, {50, part}}, 49), Error) << "four blocks";
  EXPECT_THROW(make({{0, part}}, 50), Error) << "one block";
  EXPECT_THROW(make({{0, part}, {50, part}}, 0), Error);
  EXPECT_THROW(make({{INT64_MAX - 49, part}, {0, part}}, 50), Error);
  EXPECT_THROW(make({{UINT64_MAX, part}, {0, part}}, 50), Error);
  EXPECT_THROW(make({{0, {{1}, UINT64_MAX}}}, 50), Error);
}

}  // namespace
}  // namespace hippogriff
