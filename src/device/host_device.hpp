// The `host` device: device memory, streams and copies inside this process, so that everything runs
// and is tested without a GPU. Its memory has a limit and it refuses beyond it as a GPU does.
#pragma once

#include "device/device.hpp"

#include <memory>

namespace hippogriff {

struct HostDeviceOptions {
  std::string name = "host";
  // Device memory in bytes; 0: half of the machine's memory (HIPPOGRIFF_HOST_MEMORY overrides).
  std::uint64_t memory_bytes = 0;
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
