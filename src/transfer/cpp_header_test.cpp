// The C++ header does what it says, on device host: ownership, waiting, errors, spans.
#include "testing/loop_device.hpp"

#include <hippogriff/hippogriff.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using namespace std::chrono_literals;

static_assert(!std::is_copy_constructible_v<hippogriff::Transfer>);
static_assert(!std::is_copy_constructible_v<hippogriff::DeviceBuffer>);
static_assert(!std::is_copy_constructible_v<hippogriff::Runtime>);
static_assert(!std::is_copy_constructible_v<hippogriff::Stream>);
static_assert(std::is_nothrow_move_constructible_v<hippogriff::Transfer>);
static_assert(std::is_nothrow_move_assignable_v<hippogriff::DeviceBuffer>);

constexpr std::size_t file_size_bytes = (3U << 20U) + 4567;

// A folder of this test's own with one file of known bytes.
class CppHeader : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "hippogriff_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    bytes_.resize(file_size_bytes);
    unsigned value = 1;
    for (char& byte : bytes_) {
      value = value * 1664525U + 1013904223U;
      byte = static_cast<char>(value >> 24U);
    }
    std::ofstream(path("in"), std::ios::binary)
        .write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
    on_host_.device = "host";
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path path(const char* name) const { return folder_ / name; }

  [[nodiscard]] std::vector<char> content(const char* name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  hippogriff::Runtime runtime_;
  hippogriff::Options on_host_;
  std::vector<char> bytes_;

 private:
  std::filesystem::path folder_;
};

TEST_F(CppHeader, send_without_memory_allocates_it_and_recv_by_path_writes_the_file) {
  const hippogriff::DeviceBuffer data =
      hippogriff::send(path("in"), 0, hippogriff::whole, on_host_);
  ASSERT_EQ(data.size_bytes(), file_size_bytes);
  hippogriff::recv(path("out"), data);
  EXPECT_EQ(content("out"), bytes_);
}

TEST_F(CppHeader, prefetch_takes_paths_and_descriptors) {
  hippogriff::prefetch(path("in"));
  hippogriff::prefetch(path("in"), 5, 1000);
  EXPECT_THROW(hippogriff::prefetch(path("in"), file_size_bytes + 1), hippogriff::TransferError);
  EXPECT_THROW(hippogriff::prefetch(-1), hippogriff::TransferError);
}

TEST_F(CppHeader, send_async_without_memory_allocates_it_and_tells_its_route) {
  hippogriff::Transfer transfer = hippogriff::send_async(path("in"), 5, 1000, on_host_);
  transfer.wait();
  EXPECT_EQ(transfer.route(), "direct");
  EXPECT_EQ(transfer.progress().bytes_total, 1000U);
  const auto data = hippogriff::DeviceBuffer::adopt(transfer.address(), 1000);
  std::vector<char> read(1000);
  data.copy_to(std::span(read));
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes_.begin() + 5));
  on_host_.route = HIPPOGRIFF_ROUTE_PIPELINED;
  hippogriff::Transfer pipelined = hippogriff::send_async(path("in"), data, 0, on_host_);
  pipelined.wait();
  EXPECT_EQ(pipelined.route(), "pipelined");
}

TEST_F(CppHeader, a_block_device_is_read_and_written_in_place) {
  constexpr std::size_t size = (3U << 20U) + 512;
  const hippogriff::LoopDevice loop(size, 512);
  if (!loop.obstacle().empty()) {
    GTEST_SKIP() << "no loop device: " << loop.obstacle();
  }
  hippogriff::DeviceBuffer data(bytes_.size(), "host");
  data.copy_from(std::span<const char>(bytes_));
  EXPECT_THROW(hippogriff::recv(loop.path(), data), hippogriff::TransferError);
  bytes_.resize(size - 1000);
  hippogriff::recv(loop.path(), hippogriff::DeviceSpan{data.data(), bytes_.size()});
  const auto back = hippogriff::send(loop.path(), 0, hippogriff::whole, on_host_);
  ASSERT_EQ(back.size_bytes(), size);
  std::vector<char> read(size);
  back.copy_to(std::span(read));
  EXPECT_TRUE(std::equal(bytes_.begin(), bytes_.end(), read.begin()));
  EXPECT_TRUE(std::all_of(read.end() - 1000, read.end(), [](char byte) { return byte == 0; }));
  EXPECT_TRUE(std::filesystem::is_block_file(loop.path()));
}

TEST_F(CppHeader, part_of_a_file_lands_in_a_buffer_by_descriptor) {
  const int fd = open(path("in").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  hippogriff::DeviceBuffer buffer(1001, "host");
  hippogriff::send(fd, buffer, 333);
  close(fd);
  std::vector<char> read(1001);
  buffer.copy_to(std::span(read));
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes_.begin() + 333));
}

TEST_F(CppHeader, parts_of_a_file_land_in_buffers_of_their_own) {
  const int fd = open(path("in").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  hippogriff::DeviceBuffer first(1000, "host");
  hippogriff::DeviceBuffer second(500, "host");
  const std::array parts = {hippogriff_segment{2000, 500, second.data()},
                            hippogriff_segment{7, 1000, first.data()}};
  hippogriff::send_async(fd, parts).wait();
  close(fd);
  std::vector<char> read(1000);
  first.copy_to(std::span(read));
  EXPECT_TRUE(std::equal(read.begin(), read.end(), bytes_.begin() + 7));
  second.copy_to(std::span(read).first(500));
  EXPECT_TRUE(std::equal(read.begin(), read.begin() + 500, bytes_.begin() + 2000));
}

TEST_F(CppHeader, parts_that_land_in_ordinary_memory_are_hashed_on_the_way) {
  const int fd = open(path("in").c_str(), O_RDONLY);
  ASSERT_GE(fd, 0);
  std::vector<char> memory(3000);
  const std::array parts = {hippogriff_segment{7, 1000, memory.data()},
                            hippogriff_segment{2000, 1500, memory.data() + 1000}};
  std::array<std::uint64_t, 4> found{};
  on_host_.flags = HIPPOGRIFF_HOST_MEMORY;
  on_host_.checksums = found;
  on_host_.checksum_block_bytes = 900;
  hippogriff::send_async(fd, parts, on_host_).wait();
  close(fd);
  on_host_.checksums = {};
  auto expected = hippogriff::checksum(std::span<char>(memory).first(1000), 900, on_host_);
  const auto second =
      hippogriff::checksum(std::span<char>(memory).subspan(1000, 1500), 900, on_host_);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_TRUE(std::ranges::equal(found, expected));
}

TEST_F(CppHeader, spans_of_ordinary_memory_work_on_device_host) {
  on_host_.flags = HIPPOGRIFF_HOST_MEMORY;
  std::vector<std::uint32_t> memory(1000);
  hippogriff::send(path("in"), std::span(memory), 8, on_host_);
  EXPECT_EQ(std::memcmp(memory.data(), bytes_.data() + 8, 4000), 0);
  std::iota(memory.begin(), memory.end(), 0U);
  hippogriff::recv(path("out"), std::span(memory), 0, on_host_);
  const std::vector<char> written = content("out");
  ASSERT_EQ(written.size(), 4000U);
  EXPECT_EQ(std::memcmp(memory.data(), written.data(), 4000), 0);
}

TEST_F(CppHeader, empty_spans_are_refused_because_size_zero_means_the_rest) {
  std::span<char> nothing;
  EXPECT_THROW(hippogriff::send(path("in"), nothing, 0, on_host_), std::invalid_argument);
  EXPECT_THROW(hippogriff::recv(path("out"), nothing, 0, on_host_), std::invalid_argument);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(CppHeader, asynchronous_transfer_tells_progress_report_and_descriptor) {
  hippogriff::DeviceBuffer buffer(file_size_bytes, "host");
  hippogriff::Transfer transfer = hippogriff::send_async(path("in"), buffer);
  pollfd poll_one{transfer.fd(), POLLIN, 0};
  ASSERT_EQ(poll(&poll_one, 1, 30'000), 1);
  ASSERT_TRUE(transfer.wait(30s));
  EXPECT_TRUE(transfer.finished());
  EXPECT_EQ(transfer.progress().bytes_done, file_size_bytes);
  EXPECT_EQ(transfer.progress().bytes_total, file_size_bytes);
  EXPECT_EQ(transfer.address(), buffer.data());
  EXPECT_TRUE(transfer.missing().empty());
  EXPECT_NE(transfer.report().find("route"), std::string::npos);
}

TEST_F(CppHeader, absent_file_throws_with_its_path_and_errno) {
  hippogriff::DeviceBuffer buffer(100, "host");
  try {
    hippogriff::send(path("absent"), buffer);
    FAIL() << "an absent file was sent";
  } catch (const hippogriff::TransferError& error) {
    EXPECT_EQ(error.status(), HIPPOGRIFF_IO_ERROR);
    EXPECT_EQ(error.errno_value(), ENOENT);
    EXPECT_EQ(error.object(), path("absent").string());
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos);
  }
}

TEST_F(CppHeader, offset_past_the_end_throws) {
  hippogriff::DeviceBuffer buffer(100, "host");
  EXPECT_THROW(hippogriff::send(path("in"), buffer, file_size_bytes + 1),
               hippogriff::TransferError);
}

TEST_F(CppHeader, transfer_that_waits_for_a_stream_times_out_and_then_goes_on) {
  hippogriff::Stream stream("host");
  static std::atomic<bool> open_gate;
  open_gate = false;
  stream.launch(
      [](void*) {
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        while (!open_gate && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(1ms);
        }
      },
      nullptr);
  EXPECT_FALSE(stream.synchronize(1ms));
  hippogriff::DeviceBuffer buffer(1000, "host");
  on_host_.stream = stream.native_handle();
  on_host_.flags = HIPPOGRIFF_AFTER_STREAM;
  hippogriff::Transfer transfer = hippogriff::send_async(path("in"), buffer, 0, on_host_);
  EXPECT_FALSE(transfer.wait(30ms));
  open_gate = true;
  EXPECT_TRUE(transfer.wait(30s));
  EXPECT_TRUE(stream.synchronize(30s));
}

TEST_F(CppHeader, destroying_a_transfer_in_flight_stops_it_before_its_memory_goes) {
  hippogriff::Stream stream("host");
  static std::atomic<bool> open_gate;
  open_gate = false;
  stream.launch(
      [](void*) {
        const auto deadline = std::chrono::steady_clock::now() + 30s;
        while (!open_gate && std::chrono::steady_clock::now() < deadline) {
          std::this_thread::sleep_for(1ms);
        }
      },
      nullptr);
  hippogriff::DeviceBuffer buffer(1000, "host");
  on_host_.stream = stream.native_handle();
  on_host_.flags = HIPPOGRIFF_AFTER_STREAM;
  {
    const hippogriff::Transfer transfer = hippogriff::send_async(path("in"), buffer, 0, on_host_);
    EXPECT_FALSE(transfer.finished());
  }
  open_gate = true;
  EXPECT_TRUE(stream.synchronize(30s));
  EXPECT_NO_THROW(buffer.free());
}

TEST_F(CppHeader, buffers_move_and_copy_and_check_their_ends) {
  hippogriff::DeviceBuffer first(16, "host");
  const std::vector<std::uint32_t> values = {1, 2, 3, 4};
  first.copy_from(std::span(values));
  hippogriff::DeviceBuffer second = std::move(first);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): moved-from is empty
  std::vector<std::uint32_t> two(2);
  second.copy_to(std::span(two), 8);
  EXPECT_EQ(two, (std::vector<std::uint32_t>{3, 4}));
  EXPECT_THROW(second.copy_to(std::span(two), 12), std::out_of_range);
  EXPECT_THROW(second.copy_from(std::span(values), SIZE_MAX), std::out_of_range);
  EXPECT_THROW(hippogriff::DeviceBuffer(0, "host"), hippogriff::TransferError);
  EXPECT_THROW(hippogriff::DeviceBuffer(1, "nowhere:3"), hippogriff::TransferError);
}

TEST_F(CppHeader, checksums_are_those_of_xxhash) {
  hippogriff::DeviceBuffer buffer(16, "host");
  const std::vector<std::uint32_t> values = {1, 2, 3, 4};
  buffer.copy_from(std::span(values));
  EXPECT_EQ(hippogriff::checksum(buffer, 12),
            (std::vector<std::uint64_t>{0x6bbf7429332bea48, 0x971560b110149498}));
  EXPECT_EQ(hippogriff::checksum(buffer, 16).size(), 1U);
  EXPECT_THROW(static_cast<void>(hippogriff::checksum(buffer, 0)), hippogriff::TransferError);
}

}  // namespace
