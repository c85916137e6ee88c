// What the hand-tuned programs overlap with: copies between pinned memory and a device that go on
// by themselves. Failures throw std::runtime_error.
#pragma once

#include "workloads/sharing/device.hpp"

#include <cstddef>
#include <memory>

// Host memory in huge pages, pinned where the device is a GPU.
class PinnedMemory {
 public:
  PinnedMemory(const Device& device, std::size_t size_bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

  [[nodiscard]] std::byte* get() const { return memory_; }

 private:
  std::size_t size_bytes_;
  bool pinned_ = false;
  std::byte* memory_ = nullptr;
};

// Copies of one thread, in the order they were asked for, each out of or into a slot of pinned
// memory. To be made and used on that thread alone.
class CopyQueue {
 public:
  CopyQueue() = default;
  virtual ~CopyQueue() = default;
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  // Return before the copy is through; wait(slot) tells when it is. Memory must stay until then.
  virtual void copy_in(void* to, const void* from, std::size_t size_bytes, unsigned slot) = 0;
  virtual void copy_out(void* to, const void* from, std::size_t size_bytes, unsigned slot) = 0;
  // At once for a slot that had no copy yet.
  virtual void wait(unsigned slot) = 0;
  // Until all copies have ended, however they did.
  virtual void drain() noexcept = 0;
};

// On device host copies are made by the calling thread. `gpu`: the GPU's number, else of no
// meaning.
std::unique_ptr<CopyQueue> open_copy_queue(Device& device, int gpu, unsigned slots);

// What is different on a GPU.
int current_gpu();  // of the calling thread
std::unique_ptr<CopyQueue> open_gpu_queue(int number, unsigned slots);
void pin_for_gpu(void* memory, std::size_t size_bytes);
void unpin_for_gpu(void* memory) noexcept;
