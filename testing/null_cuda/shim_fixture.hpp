// What the shim's tests share: a context on device 0, and the books from both sides.
#pragma once

#define __CUDA_API_VERSION_INTERNAL  // NOLINT: theirs
#include "testing/null_cuda/null_cuda.hpp"

#include <cuda.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>

namespace hippogriff::testing {

inline constexpr std::uint64_t kib = 1024;
inline constexpr std::uint64_t mib = 1024 * kib;
// HIPPOGRIFF_MEMORY, as the tests' environment sets it.
inline constexpr std::uint64_t limit_bytes = 64 * mib;

// What the shim counts on the current device, as a program sees it.
inline std::uint64_t used_bytes() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  EXPECT_EQ(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(total_bytes, limit_bytes);
  return total_bytes - free_bytes;
}

inline bool counts_processes_together() {
  return ::getenv("HIPPOGRIFF_RESERVATION") != nullptr;  // NOLINT(concurrency-mt-unsafe): in tests
}

inline std::uint64_t held_bytes(int device = 0) {
  return HIPPO_NULL(null_cuda_held)(device);
}

// A context is current; nothing is held before a test, and nothing is counted after it.
class ShimTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    ASSERT_EQ(used_bytes(), 0U);
  }

  void TearDown() override {
    EXPECT_EQ(used_bytes(), held_bytes());
    EXPECT_EQ(cuCtxDestroy_v2(context), CUDA_SUCCESS);
    EXPECT_EQ(held_bytes(0), 0U);
    EXPECT_EQ(held_bytes(1), 0U);
  }

  CUcontext context = nullptr;
};

}  // namespace hippogriff::testing
