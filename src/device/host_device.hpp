// The `host` device: device memory, streams and copies inside this process, so that everything runs
// and is tested without a GPU. Its memory has a limit and it refuses beyond it as a GPU does.
#pragma once

#include "device/device.hpp"

#include <cstdint>
#include <memory>

namespace hippogriff {

// Who has to agree before a device gives memory out: other processes may share it. Thread-safe.
class MemoryLedger {
 public:
  virtual ~MemoryLedger() = default;
  // False: not now, it is promised to others. May wait where a command's memory is to be had first.
  virtual bool take(std::uint64_t size_bytes) noexcept = 0;
  virtual void give(std::uint64_t size_bytes) noexcept = 0;
};

// What HIPPOGRIFF_HOST_MEMORY says, or half of the machine's memory. Throws
// Error(invalid_argument) naming the variable.
std::uint64_t host_memory_limit_bytes();

struct HostDeviceOptions {
  std::string name = "host";
  std::uint64_t memory_bytes = 0;        // 0: host_memory_limit_bytes()
  std::shared_ptr<MemoryLedger> ledger;  // may be null: the device is this process's alone
  // A link to simulate: copies of all streams share it, one at a time in each direction. 0: none,
  // copies run at memcpy speed and device addresses are host pointers (can.host_addressable).
  double link_bytes_per_second = 0;
  std::chrono::nanoseconds link_latency{0};
  // can.registers_aside, and only once somebody asked, as on CUDA devices: plans then mix mapped
  // windows with reads.
  bool registers_aside = false;
};

// Thread-safe. Every stream has a thread of its own, started at its first work.
std::shared_ptr<Device> make_host_device(const HostDeviceOptions& options);

}  // namespace hippogriff
