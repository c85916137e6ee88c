// Processes that are killed at a step of what they do, and what they tell in memory of their own.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <new>

namespace hippogriff::testing {

// A `T` that a test shares with the children it forks.
template <typename T>
class SharedMemory {
 public:
  SharedMemory() {
    void* memory =
        ::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    shared_ = new (memory) T;
  }

  ~SharedMemory() { ::munmap(shared_, sizeof(T)); }

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  T* operator->() const { return shared_; }

  [[nodiscard]] T* get() const { return shared_; }

 private:
  T* shared_ = nullptr;
};

struct StepCount {
  std::atomic<bool> armed{false};
  std::atomic<std::int64_t> left{0};
};

// As Steps::at, of a StepCount: kills the process when the armed count of steps has gone by.
inline void die_at_step(void* context, const char* /*place*/) {
  auto* count = static_cast<StepCount*>(context);
  if (count->armed && count->left.fetch_sub(1) == 0) {
    ::raise(SIGKILL);
  }
}

// For so long nobody may be held up by one that was killed. Its lock is taken from it after 10 ms,
// and what it held after 50, the interval in which who waits looks; on two cores that are busy
// otherwise it was never more than a tenth of a second. The rest is for machines that are slower.
inline constexpr std::chrono::milliseconds held_up_max{2000};

}  // namespace hippogriff::testing
