// The host's side of block.hpp: a block is a loop on one core, and where a launch goes.
#pragma once

#include "workloads/papers/block.hpp"
#include "workloads/sharing/device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

// A block on the CPU: its threads are a loop.
template <unsigned Threads>
class HostBlock {
 public:
  template <typename T>
  class PerThread {
   public:
    T& operator[](unsigned thread) { return values_[thread]; }

   private:
    std::array<T, Threads> values_{};
  };

  explicit HostBlock(std::size_t index) : index_(index) {}

  [[nodiscard]] std::size_t index() const { return index_; }

  // Every other block goes backwards, so that a result that depends on the threads' order, as a
  // GPU's might, is wrong here.
  template <typename Do>
  void each(const Do& act) const {
    const bool backwards = index_ % 2 == 0;
    for (unsigned i = 0; i < Threads; ++i) {
      act(backwards ? Threads - 1 - i : i);
    }
  }

  template <typename T>
  T read(const T& shared) const {
    return shared;
  }

 private:
  std::size_t index_;
};

#if !HIPPOGRIFF_HAS_CUDA
template <typename Work>
void on_gpu_blocks(const Work& /*work*/, std::size_t /*blocks*/) {
  throw std::runtime_error("built without CUDA");
}
#endif

// Runs the blocks on all cores and waits.
template <typename Work>
void on_host_blocks(const Work& work, std::size_t blocks) {
  constexpr std::size_t worth_a_thread = 4;
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  const std::size_t count = std::clamp<std::size_t>(blocks / worth_a_thread, 1, cores);
  std::vector<std::unique_ptr<typename Work::Shared>> shared(count);
  for (auto& each : shared) {
    each = std::make_unique_for_overwrite<typename Work::Shared>();
  }
  std::atomic<std::size_t> next = 0;
  const auto take_blocks = [&](auto& mine) {
    for (std::size_t index = next++; index < blocks; index = next++) {
      work(HostBlock<Work::threads>(index), mine);
    }
  };
  std::vector<std::jthread> others;
  for (std::size_t i = 1; i < count; ++i) {
    others.emplace_back([&take_blocks, &mine = *shared[i]] { take_blocks(mine); });
  }
  take_blocks(*shared[0]);
}

// Runs `blocks` blocks on the device, in order with what was launched before. wait_for_gpu(), or a
// copy, tells when they are through.
template <typename Work>
void launch(const Device& device, const Work& work, std::size_t blocks) {
  if (blocks == 0) {
    return;
  }
  if (device.is_gpu()) {
    on_gpu_blocks(work, blocks);
  } else {
    on_host_blocks(work, blocks);
  }
}
