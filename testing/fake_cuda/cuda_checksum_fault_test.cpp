// What becomes of checksums when the driver refuses the kernel or fails: over the fake driver.
#include "checksum/device_checksum.hpp"
#include "checksum/xxh3_host.hpp"
#include "device/cuda_device.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"

#include <cuda.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace hippogriff {
namespace {

constexpr std::size_t memory_bytes = (std::size_t{5} << 20) + 3;
constexpr std::size_t block_bytes = std::size_t{1} << 20;

class CudaChecksumFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake_.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake_->reset();
    device_ = make_cuda_device(0);
    scope_.emplace(*device_);
    base_ = device_->allocate(memory_bytes);
    // The fake's device memory is the host's.
    std::memset(reinterpret_cast<void*>(base_.value), 7, memory_bytes);
    checksum_ = std::make_unique<DeviceChecksum>(device_, std::chrono::seconds(60));
  }

  void TearDown() override {
    fake_->reset();
    checksum_.reset();
    device_->release(base_);
    scope_.reset();
    device_.reset();
    for (const char* what : {"streams", "events", "allocations", "modules", "contexts"}) {
      EXPECT_EQ(fake_->count(what), 0) << what << " leaked";
    }
  }

  std::vector<std::uint64_t> compute() {
    const std::array parts{MemoryPart{base_, memory_bytes}};
    std::vector<std::uint64_t> checksums(count_blocks(parts, block_bytes));
    checksum_->compute(parts, block_bytes, nullptr, 2, checksums);
    return checksums;
  }

  [[nodiscard]] std::vector<std::uint64_t> expected() const {
    const std::vector<std::byte> bytes(memory_bytes, std::byte{7});
    std::vector<std::uint64_t> checksums;
    for (std::size_t offset = 0; offset < memory_bytes; offset += block_bytes) {
      checksums.push_back(
          xxh3_of(bytes.data() + offset, std::min(block_bytes, memory_bytes - offset)));
    }
    return checksums;
  }

  std::optional<testing::FakeCuda> fake_;
  std::shared_ptr<Device> device_;
  std::optional<DeviceScope> scope_;
  DeviceAddress base_;
  std::unique_ptr<DeviceChecksum> checksum_;
};

TEST_F(CudaChecksumFaultTest, kernel_is_used_and_unloaded_at_the_end) {
  EXPECT_EQ(compute(), expected());
  EXPECT_EQ(fake_->count("modules"), 1);
}

TEST_F(CudaChecksumFaultTest, driver_that_cannot_load_the_kernel_gets_copies_instead) {
  for (const char* function : {"cuModuleLoadData", "cuModuleGetFunction"}) {
    checksum_ = std::make_unique<DeviceChecksum>(device_, std::chrono::seconds(60));
    fake_->fail(function, 1, CUDA_ERROR_NO_BINARY_FOR_GPU);
    EXPECT_EQ(compute(), expected());
    EXPECT_NE(checksum_->why_copied().find("cannot be loaded"), std::string::npos);
    EXPECT_EQ(compute(), expected()) << "the second time";
  }
}

TEST_F(CudaChecksumFaultTest, failure_is_told_and_the_next_call_works) {
  for (const char* function : {"cuLaunchKernel",
                               "cuStreamCreate",
                               "cuEventCreate",
                               "cuEventRecord",
                               "cuEventQuery",
                               "cuMemHostGetDevicePointer"}) {
    // A failure gives up the stream and the event, which are made anew by the next call.
    fake_->fail("cuLaunchKernel", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    EXPECT_THROW(static_cast<void>(compute()), Error);
    fake_->fail(function, 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    try {
      static_cast<void>(compute());
      ADD_FAILURE() << function << " failed unseen";
    } catch (const Error& error) {
      EXPECT_EQ(error.failure().status, Status::device_error) << error.what();
      EXPECT_EQ(error.failure().device_status, CUDA_ERROR_ILLEGAL_ADDRESS) << error.what();
    }
    EXPECT_EQ(compute(), expected()) << "after " << function;
  }
}

}  // namespace
}  // namespace hippogriff
