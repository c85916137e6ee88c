// Checksums that a send to host memory computes as it lands, through the C interface.
#include "checksum/landing_checksums.hpp"
#include "checksum/xxh3_host.hpp"
#include "testing/abi_fixture.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/transfer.hpp"

#include <algorithm>
#include <array>

namespace hippogriff {
namespace {

constexpr std::size_t landed_bytes = (std::size_t{24} << 20) + 77;
constexpr std::size_t block_bytes = std::size_t{1} << 18;

class LandingTest : public AbiTest {
 protected:
  LandingTest() {
    // Small ones side by side, one without bytes, one of several pieces, holes, an odd end.
    for (std::size_t index = 0; index < 40; ++index) {
      add(1000 * index, 1000);
    }
    add(50'000, 0);
    add(50'000, std::size_t{9} << 20);
    add((std::size_t{10} << 20) + 1, block_bytes);
    add((std::size_t{11} << 20) + 13, landed_bytes - (std::size_t{11} << 20) - 13);
    options_.flags = HIPPOGRIFF_HOST_MEMORY;
    options_.checksum_block_bytes = block_bytes;
    options_.checksums = found_.data();
    options_.checksum_count = found_.size();
  }

  void add(std::size_t offset, std::size_t size) {
    segments_.push_back({offset, size, memory_.data() + offset});
    for (std::size_t at = 0; at < size; at += block_bytes) {
      expected_.push_back(xxh3_of(content_.data() + offset + at, std::min(block_bytes, size - at)));
    }
    found_.assign(expected_.size(), 0);
  }

  int send() {
    hippogriff_transfer* transfer = nullptr;
    const OpenFile file(path_, O_RDONLY);
    const int status = hippogriff_sendv_async(
        file.get(), segments_.data(), segments_.size(), &options_, &transfer);
    if (status != HIPPOGRIFF_OK) {
      return status;
    }
    const Handle handle(transfer);
    return hippogriff_wait(transfer, abi_patience_ms);
  }

  void expect_right() {
    found_.assign(found_.size(), 0);
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    ASSERT_EQ(send(), HIPPOGRIFF_OK) << last_message();
    EXPECT_EQ(found_, expected_);
    for (const hippogriff_segment& each : segments_) {
      EXPECT_EQ(std::memcmp(each.memory, content_.data() + each.offset, each.size), 0);
    }
  }

  void expect_refused(const char* words) {
    EXPECT_EQ(send(), HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_NE(last_message().find(words), std::string::npos) << last_message();
  }

  const std::string path_ = folder_.file("data");
  const std::vector<std::byte> content_ = make_file(path_, landed_bytes, 3);
  std::vector<std::byte> memory_ = std::vector<std::byte>(landed_bytes);
  std::vector<hippogriff_segment> segments_;
  std::vector<std::uint64_t> expected_;
  std::vector<std::uint64_t> found_;
  hippogriff_options options_ = HIPPOGRIFF_OPTIONS_INIT;
};

TEST_F(LandingTest, checksums_are_those_of_the_blocks_by_every_route) {
  for (const hippogriff_route route : {HIPPOGRIFF_ROUTE_AUTO,
                                       HIPPOGRIFF_ROUTE_DIRECT,
                                       HIPPOGRIFF_ROUTE_MAPPED,
                                       HIPPOGRIFF_ROUTE_PIPELINED,
                                       HIPPOGRIFF_ROUTE_PARKED}) {
    for (const bool cold : {false, true}) {
      SCOPED_TRACE(std::string(hippogriff_route_name(route)) + (cold ? ", cold" : ", cached"));
      if (cold) {
        drop_cache(path_, 0, landed_bytes);
      }
      options_.route = route;
      expect_right();
    }
  }
}

// No block is left to two threads: the second would hash what is in no cache of its core any more.
TEST(LandingPieces, end_with_the_blocks_that_are_hashed) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  constexpr std::uint64_t begin = 5000;
  std::vector<std::uint64_t> found(40);
  TransferRequest request;
  request.extent = {0, begin + 40 * block_bytes};
  request.checksums = std::make_shared<LandingChecksums>(
      std::vector<LandingPart>{{begin, {{1}, 40 * block_bytes}}}, block_bytes, found);
  Transfer transfer(std::move(request), RoutingDecision{}, nullptr, Warmth::warm);
  std::uint64_t claimed = 0;
  while (const auto piece = transfer.work.claim_warm(2 * mib)) {
    EXPECT_EQ((piece->end() - begin) % block_bytes, 0U) << piece->offset;
    claimed += piece->size;
  }
  EXPECT_EQ(claimed, begin + 40 * block_bytes);
}

// Each byte lands once, whichever way a piece is cut: a block that was counted twice would be
// hashed before its last bytes are there, or not at all.
TEST_F(LandingTest, pieces_of_any_size_complete_each_block_once) {
  options_.route = HIPPOGRIFF_ROUTE_DIRECT;
  for (const char* piece : {"64KiB", "260KiB", "516KiB", "2MiB"}) {
    SCOPED_TRACE(piece);
    EXPECT_EQ(hippogriff_deinit(), HIPPOGRIFF_OK) << last_message();
    setenv("HIPPOGRIFF_PIECE", piece, 1);  // NOLINT(concurrency-mt-unsafe)
    EXPECT_EQ(hippogriff_init(), HIPPOGRIFF_OK) << last_message();
    unsetenv("HIPPOGRIFF_PIECE");  // NOLINT(concurrency-mt-unsafe)
    expect_right();
  }
}

TEST_F(LandingTest, memory_is_hashed_as_it_is_where_the_transfer_filled_it) {
  expect_right();
  const OpenFile file(path_, O_RDWR);
  const std::byte other = content_[60'000] ^ std::byte{1};
  ASSERT_EQ(::pwrite(file.get(), &other, 1, 60'000), 1);
  ASSERT_EQ(send(), HIPPOGRIFF_OK) << last_message();
  std::size_t differ = 0;
  for (std::size_t index = 0; index < found_.size(); ++index) {
    differ += found_[index] == expected_[index] ? 0 : 1;
  }
  EXPECT_EQ(differ, 1U);
}

TEST_F(LandingTest, what_cannot_be_is_refused_before_anything_moves) {
  options_.flags = 0;
  expect_refused("HOST_MEMORY");
  options_.flags = HIPPOGRIFF_HOST_MEMORY;
  options_.checksum_count = found_.size() - 1;
  expect_refused("blocks");
  options_.checksum_count = found_.size();
  options_.checksum_block_bytes = 0;
  expect_refused("0 bytes");
  options_.checksum_block_bytes = block_bytes;
  options_.checksums = nullptr;
  expect_refused("need room");
  options_.checksums = found_.data();
  std::swap(segments_.front(), segments_.back());
  expect_refused("ascend");
  EXPECT_EQ(std::ranges::count(memory_, std::byte{0}), static_cast<std::ptrdiff_t>(landed_bytes));
}

TEST_F(LandingTest, only_sends_to_segments_have_checksums) {
  const OpenFile file(path_, O_RDWR);
  hippogriff_transfer* transfer = nullptr;
  void* memory = memory_.data();
  EXPECT_EQ(hippogriff_send_async(file.get(), &memory, 0, 4096, &options_, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_recv_async(file.get(), memory, 0, 4096, &options_, &transfer),
            HIPPOGRIFF_INVALID_ARGUMENT);
  const hippogriff_memory part{memory, 4096};
  std::uint64_t found = 0;
  EXPECT_EQ(hippogriff_checksum(&part, 1, 4096, &options_, &found, 1), HIPPOGRIFF_INVALID_ARGUMENT);
  options_.struct_size = offsetof(hippogriff_options, checksums);
  EXPECT_EQ(hippogriff_checksum(&part, 1, 4096, &options_, &found, 1), HIPPOGRIFF_OK)
      << last_message() << ": an older program has none";
}

}  // namespace
}  // namespace hippogriff
