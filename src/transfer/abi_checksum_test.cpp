// Checksums through the C interface: on host memory, and on the memory of every device there is.
#include "checksum/xxh3_host.hpp"
#include "testing/abi_fixture.hpp"

#include <algorithm>
#include <array>
#include <thread>

namespace hippogriff {
namespace {

constexpr std::size_t checked_bytes = (std::size_t{5} << 20) + 77;
constexpr std::size_t block_bytes = std::size_t{1} << 18;
constexpr std::size_t block_count = checked_bytes / block_bytes + 1;

class AbiChecksumTest : public AbiTest {
 protected:
  [[nodiscard]] std::vector<std::uint64_t> expected(std::size_t offset = 0) const {
    std::vector<std::uint64_t> checksums;
    for (std::size_t begin = offset; begin < checked_bytes; begin += block_bytes) {
      checksums.push_back(
          xxh3_of(bytes_.data() + begin, std::min(block_bytes, checked_bytes - begin)));
    }
    return checksums;
  }

  static hippogriff_options options(const char* device, std::uint32_t flags) {
    hippogriff_options made = HIPPOGRIFF_OPTIONS_INIT;
    made.device = device;
    made.flags = flags;
    return made;
  }

  // Copies the bytes to a device and has them hashed there, from offset 3 on.
  void expect_right_on(const char* device) {
    void* memory = nullptr;
    ASSERT_EQ(hippogriff_malloc(device, checked_bytes, &memory), HIPPOGRIFF_OK) << last_message();
    ASSERT_EQ(hippogriff_copy_to_device(memory, bytes_.data(), checked_bytes), HIPPOGRIFF_OK);
    const hippogriff_memory part{static_cast<std::byte*>(memory) + 3, checked_bytes - 3};
    std::vector<std::uint64_t> found(block_count);
    const auto after = options(nullptr, HIPPOGRIFF_AFTER_STREAM);
    for (const hippogriff_options* each :
         {static_cast<const hippogriff_options*>(nullptr), &after}) {
      EXPECT_EQ(hippogriff_checksum(&part, 1, block_bytes, each, found.data(), found.size()),
                HIPPOGRIFF_OK)
          << last_message();
      EXPECT_EQ(found, expected(3));
    }
    const hippogriff_memory beyond{memory, checked_bytes * 100};
    std::vector<std::uint64_t> many(checked_bytes * 100 / block_bytes + 1);
    refused(&beyond, many, nullptr, "holds only");
    EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK) << last_message();
  }

  void refused(const hippogriff_memory* part,
               std::vector<std::uint64_t>& checksums,
               const hippogriff_options* how,
               const char* words) {
    EXPECT_EQ(hippogriff_checksum(part, 1, block_bytes, how, checksums.data(), checksums.size()),
              HIPPOGRIFF_INVALID_ARGUMENT);
    EXPECT_NE(last_message().find(words), std::string::npos) << last_message();
  }

  const std::vector<std::byte> bytes_ = random_bytes(checked_bytes, 11);
  std::vector<std::uint64_t> found_ = std::vector<std::uint64_t>(block_count);
  const hippogriff_memory part_{bytes_.data(), checked_bytes};
  const hippogriff_options on_host_ = options(nullptr, HIPPOGRIFF_HOST_MEMORY);
};

TEST_F(AbiChecksumTest, of_ordinary_host_memory) {
  EXPECT_EQ(hippogriff_checksum(&part_, 1, block_bytes, &on_host_, found_.data(), found_.size()),
            HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(found_, expected());
}

TEST_F(AbiChecksumTest, of_many_parts_come_in_their_order) {
  const std::array parts{hippogriff_memory{bytes_.data() + 9, 1000},
                         hippogriff_memory{nullptr, 0},
                         hippogriff_memory{bytes_.data() + 1, block_bytes + 1}};
  std::array<std::uint64_t, 3> found{};
  EXPECT_EQ(hippogriff_checksum(
                parts.data(), parts.size(), block_bytes, &on_host_, found.data(), found.size()),
            HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(found[0], xxh3_of(bytes_.data() + 9, 1000));
  EXPECT_EQ(found[1], xxh3_of(bytes_.data() + 1, block_bytes));
  EXPECT_EQ(found[2], xxh3_of(bytes_.data() + 1 + block_bytes, 1));
}

TEST_F(AbiChecksumTest, of_nothing_are_none) {
  EXPECT_EQ(hippogriff_checksum(nullptr, 0, 1, nullptr, nullptr, 0), HIPPOGRIFF_OK);
  const hippogriff_memory empty{nullptr, 0};
  EXPECT_EQ(hippogriff_checksum(&empty, 1, 1, nullptr, nullptr, 0), HIPPOGRIFF_OK);
}

TEST_F(AbiChecksumTest, of_device_host) {
  expect_right_on("host");
}

TEST_F(AbiChecksumTest, mistakes_are_refused) {
  std::vector<std::uint64_t> fewer(block_count - 1);
  refused(&part_, fewer, &on_host_, "the parts have 21 blocks, and checksum_count is 20");
  refused(&part_, found_, nullptr, "not device memory");
  const auto named = options("host", 0);
  refused(&part_, found_, &named, "not memory of device host");
  const auto durable = options(nullptr, HIPPOGRIFF_DURABLE);
  refused(&part_, found_, &durable, "only device, stream");
  const auto nowhere = options("tape", HIPPOGRIFF_HOST_MEMORY);
  refused(&part_, found_, &nowhere, "tape");
  const hippogriff_memory null{nullptr, checked_bytes};
  refused(&null, found_, &on_host_, "NULL");
  const hippogriff_memory endless{bytes_.data(), UINT64_MAX};
  refused(&endless, found_, &on_host_, "beyond any memory");
  EXPECT_EQ(hippogriff_checksum(&part_, 1, 0, &on_host_, found_.data(), found_.size()),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_checksum(nullptr, 1, 1, &on_host_, found_.data(), found_.size()),
            HIPPOGRIFF_INVALID_ARGUMENT);
  EXPECT_EQ(hippogriff_checksum(&part_, SIZE_MAX, 1, &on_host_, found_.data(), found_.size()),
            HIPPOGRIFF_INVALID_ARGUMENT);
}

TEST_F(AbiChecksumTest, memory_that_a_transfer_writes_is_busy) {
  const std::string path = folder_.file("data");
  write_whole(path, bytes_);
  void* memory = device_memory(checked_bytes);
  const hippogriff_memory part{memory, checked_bytes};
  {
    HeldStream held;
    hippogriff_options after = options(nullptr, HIPPOGRIFF_AFTER_STREAM);
    after.stream = held.get();
    hippogriff_transfer* transfer = nullptr;
    ASSERT_EQ(hippogriff_send_path_async(path.c_str(), &memory, 0, 0, &after, &transfer),
              HIPPOGRIFF_OK);
    const Handle handle(transfer);
    EXPECT_EQ(hippogriff_checksum(&part, 1, block_bytes, nullptr, found_.data(), found_.size()),
              HIPPOGRIFF_BUSY);
    held.let_go();
    EXPECT_EQ(hippogriff_wait(transfer, abi_patience_ms), HIPPOGRIFF_OK) << last_message();
  }
  EXPECT_EQ(hippogriff_checksum(&part, 1, block_bytes, nullptr, found_.data(), found_.size()),
            HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(found_, expected());
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

TEST_F(AbiChecksumTest, comes_after_the_work_on_the_stream) {
  void* memory = device_memory(checked_bytes);
  HeldStream held;

  struct Copy {
    void* to;
    const std::byte* from;
  } copy{memory, bytes_.data()};

  ASSERT_EQ(hippogriff_stream_launch(
                nullptr,
                held.get(),
                [](void* argument) {
                  const auto* what = static_cast<const Copy*>(argument);
                  std::copy_n(what->from, checked_bytes, static_cast<std::byte*>(what->to));
                },
                &copy),
            HIPPOGRIFF_OK);
  hippogriff_options after = options(nullptr, HIPPOGRIFF_AFTER_STREAM);
  after.stream = held.get();
  const std::jthread later([&held] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held.let_go();
  });
  const hippogriff_memory part{memory, checked_bytes};
  EXPECT_EQ(hippogriff_checksum(&part, 1, block_bytes, &after, found_.data(), found_.size()),
            HIPPOGRIFF_OK)
      << last_message();
  EXPECT_EQ(found_, expected());
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
}

using CudaAbiChecksumTest = AbiChecksumTest;

TEST_F(CudaAbiChecksumTest, of_a_gpus_memory) {
  void* memory = nullptr;
  if (hippogriff_malloc("cuda:0", 1, &memory) != HIPPOGRIFF_OK) {
    GTEST_SKIP() << last_message();
  }
  EXPECT_EQ(hippogriff_free(memory), HIPPOGRIFF_OK);
  const hippogriff_memory freed{memory, 1};
  std::vector<std::uint64_t> one(1);
  refused(&freed, one, nullptr, "not device memory");
  expect_right_on("cuda:0");
  const auto host_memory = options("cuda:0", HIPPOGRIFF_HOST_MEMORY);
  refused(&part_, found_, &host_memory, "ordinary host memory");
}

}  // namespace
}  // namespace hippogriff
