// A device over the fake driver, and a look for leaks when it is gone.
#pragma once

#include "device/cuda_device.hpp"
#include "testing/failure_of.hpp"
#include "testing/fake_cuda/fake_cuda.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace hippogriff {

inline constexpr std::size_t mib = 1U << 20;

class CudaFaultTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_ = testing::FakeCuda::of_this_process();
    ASSERT_TRUE(fake_.has_value()) << "HIPPOGRIFF_CUDA_DRIVER must name the fake driver";
    fake_->reset();
    ASSERT_GT(cuda_presence().device_count, 0) << cuda_presence().why_not;
    device_ = make_cuda_device(0);
    scope_.emplace(*device_);
  }

  void TearDown() override {
    if (!fake_) {
      return;
    }
    fake_->reset();
    if (device_ != nullptr) {
      scope_.reset();
      device_.reset();
    }
    for (const char* what : {"streams",
                             "events",
                             "allocations",
                             "reservations",
                             "physical",
                             "registrations",
                             "contexts"}) {
      EXPECT_EQ(fake_->count(what), 0) << what << " leaked";
    }
  }

  Device& device() { return *device_; }

  const testing::FakeCuda& fake() { return *fake_; }

  void remake_device() {
    scope_.reset();
    device_.reset();
    device_ = make_cuda_device(0);
    scope_.emplace(*device_);
  }

  void drop_device() {
    scope_.reset();
    device_.reset();
  }

 private:
  std::optional<testing::FakeCuda> fake_;
  std::shared_ptr<Device> device_;

 protected:
  std::optional<DeviceScope> scope_;  // goes before the device
};

}  // namespace hippogriff
