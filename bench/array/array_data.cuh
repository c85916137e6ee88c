// What array_bench reads: host memory full of known values, and how a kernel checks them.
#pragma once

#include "array_check.cuh"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

struct alignas(16) Sixteen {
  std::uint64_t first;
  std::uint64_t second;
};

// What stands at a place: checked by all who read it.
__host__ __device__ inline std::uint64_t value_at(std::uint64_t index) {
  return index * 0x9E3779B97F4A7C15U;
}

__device__ inline std::uint64_t warp_number() {
  return (static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
}

// Reads a block whole, a warp together; the number of wrong values.
__device__ inline unsigned long long wrong_in(const Sixteen* block,
                                              std::uint64_t first,
                                              unsigned bytes) {
  unsigned long long wrong = 0;
  for (unsigned i = threadIdx.x % 32; i < bytes / 16; i += 32) {
    const Sixteen value = block[i];
    wrong += value.first == value_at(first + 2 * i) ? 0 : 1;
    wrong += value.second == value_at(first + 2 * i + 1) ? 0 : 1;
  }
  return wrong;
}

// Page-aligned host memory full of known values.
class Data {
 public:
  explicit Data(std::uint64_t bytes) : bytes_(bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw std::runtime_error("no host memory");
    }
    static_cast<void>(madvise(memory, bytes, MADV_HUGEPAGE));
    values_ = static_cast<std::uint64_t*>(memory);
    const unsigned count = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < count; ++thread) {
      threads.emplace_back([this, thread, count] {
        const std::uint64_t all = bytes_ / 8;
        for (std::uint64_t i = all * thread / count; i < all * (thread + 1) / count; ++i) {
          values_[i] = value_at(i);
        }
      });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }

  ~Data() { static_cast<void>(munmap(values_, bytes_)); }

  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  [[nodiscard]] std::span<std::uint64_t> values() const { return {values_, bytes_ / 8}; }

 private:
  std::uint64_t bytes_;
  std::uint64_t* values_ = nullptr;
};
