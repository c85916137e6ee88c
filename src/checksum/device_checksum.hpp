// Checksums of a device's memory: by the device where it can, else by the host.
#pragma once

#include "checksum/blocks.hpp"
#include "checksum/cuda_xxh3.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

namespace hippogriff {

// For one device. Thread-safe; on devices that the host cannot address calls wait for each other.
class DeviceChecksum {
 public:
  // A copy or kernel that takes longer than `patience` is a device failure.
  DeviceChecksum(std::shared_ptr<Device> device, std::chrono::nanoseconds patience);
  ~DeviceChecksum();
  DeviceChecksum(const DeviceChecksum&) = delete;
  DeviceChecksum& operator=(const DeviceChecksum&) = delete;

  // Stores XXH3 of each block of the parts, in order, and waits; `checksums` has room for just
  // those. Begins after `after` (null: at once). The device must be current on this thread; the
  // parts must be its memory. Throws Error(device_error, out_of_host_memory).
  void compute(std::span<const MemoryPart> parts,
               std::uint64_t block_bytes,
               Event* after,
               unsigned threads_max,
               std::span<std::uint64_t> checksums);

  // Why memory is copied to the host and hashed there; "" where it is not, or not tried yet.
  [[nodiscard]] std::string why_copied() const;

 private:
  union Exchange;

  [[nodiscard]] bool has_kernel();
  Exchange& exchange();
  Stream& stream();
  void finish(const char* operation);
  void by_kernel(BlockQueue& queue, Event* after, std::span<std::uint64_t> checksums);
  void by_copies(BlockQueue& queue, Event* after, std::span<std::uint64_t> checksums);

  const std::shared_ptr<Device> device_;
  const std::chrono::nanoseconds patience_;
  mutable std::mutex mutex_;
  bool tried_ = false;
  std::string why_copied_;
  std::unique_ptr<CudaXxh3> kernel_;
  Exchange* exchange_ = nullptr;  // pinned memory of the device
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;  // recorded behind what is waited for
};

}  // namespace hippogriff
