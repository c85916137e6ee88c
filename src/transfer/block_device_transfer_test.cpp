// Transfers from and to a raw block device, on a loop device where one can be made.
#include "testing/abi_fixture.hpp"
#include "testing/loop_device.hpp"
#include "testing/runtime_fixture.hpp"
#include "transfer/report.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace hippogriff {
namespace {

constexpr std::uint64_t loop_bytes = (std::uint64_t{5} << 20) + 512;

class BlockDeviceTransfer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!loop_.obstacle().empty()) {
      GTEST_SKIP() << "no loop device: " << loop_.obstacle();
    }
    content_ = random_bytes(loop_bytes, 3);
    write_whole(loop_.path(), content_);
    drop_cache(loop_.path(), 0, 0);
  }

  void expect_content() const {
    drop_cache(loop_.path(), 0, 0);
    EXPECT_TRUE(same_bytes(read_whole(loop_.path()), content_));
    struct stat status{};
    EXPECT_EQ(stat(loop_.path().c_str(), &status), 0);
    EXPECT_TRUE(S_ISBLK(status.st_mode));
  }

  LoopDevice loop_{loop_bytes, 512};
  std::vector<std::byte> content_;
};

// Every lane is taken on the device with a link.
TEST_F(BlockDeviceTransfer, extents_with_unaligned_ends_go_both_ways_by_every_route) {
  Runtime runtime(test_settings(), make_system_storage(), {linked_device()});
  const std::array<Range, 4> extents = {Range{0, loop_bytes},
                                        {777, loop_bytes - 1999},
                                        {loop_bytes - 100, 100},
                                        {std::uint64_t{1} << 20, std::uint64_t{3} << 20}};
  unsigned seed = 10;
  for (const Route route : {Route::automatic, Route::pipelined, Route::parked}) {
    for (const Range extent : extents) {
      const auto fresh = random_bytes(extent.size, ++seed);
      const DeviceAddress address = runtime.device("linked").allocate(extent.size);
      std::memcpy(device_bytes(address), fresh.data(), extent.size);
      Submission submission{.direction = Direction::recv,
                            .path = loop_.path(),
                            .address = address,
                            .offset = extent.offset,
                            .size = extent.size,
                            .route = route};
      auto transfer = runtime.submit(submission);
      ASSERT_TRUE(transfer->wait(long_enough));
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      std::memcpy(content_.data() + extent.offset, fresh.data(), extent.size);
      expect_content();
      std::memset(device_bytes(address), 0, extent.size);
      submission.direction = Direction::send;
      transfer = runtime.submit(submission);
      ASSERT_TRUE(transfer->wait(long_enough));
      EXPECT_FALSE(transfer->failed()) << transfer->failure_message();
      EXPECT_EQ(std::memcmp(device_bytes(address), fresh.data(), extent.size), 0)
          << report_json(*transfer);
      EXPECT_TRUE(runtime.free(address));
    }
  }
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

TEST_F(BlockDeviceTransfer, what_it_has_no_room_for_is_refused_before_a_byte_is_written) {
  Runtime runtime(test_settings(), make_system_storage(), {linked_device()});
  const DeviceAddress address = runtime.device("linked").allocate(loop_bytes);
  const OpenFile file(loop_.path(), O_RDWR);
  const std::array<Range, 4> extents = {
      Range{512, loop_bytes}, {loop_bytes - 100, 101}, {loop_bytes, 1}, {loop_bytes + 4096, 1000}};
  for (const Range extent : extents) {
    Submission submission{.direction = Direction::recv,
                          .path = loop_.path(),
                          .address = address,
                          .offset = extent.offset,
                          .size = extent.size};
    for (const int fd : {-1, file.get()}) {
      if (fd >= 0) {
        submission.path.clear();
        submission.fd = fd;
        EXPECT_FALSE(runtime.transfer_small(submission));
      }
      try {
        static_cast<void>(runtime.submit(submission));
        ADD_FAILURE() << "a write past the end was taken";
      } catch (const Error& error) {
        EXPECT_EQ(error.failure().errno_value, ENOSPC) << error.what();
        EXPECT_EQ(error.failure().object, loop_.path());
        EXPECT_EQ(error.failure().offset, extent.offset);
      }
    }
  }
  expect_content();
  EXPECT_TRUE(runtime.free(address));
  EXPECT_TRUE(runtime.shutdown(long_enough));
}

}  // namespace
}  // namespace hippogriff
