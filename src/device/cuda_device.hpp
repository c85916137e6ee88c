// CUDA GPUs by the driver's interface, loaded at run time: nothing links to a CUDA library.
#pragma once

#include "device/device.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace hippogriff {

// What the CUDA driver offers here.
struct CudaPresence {
  int device_count = 0;
  std::string why_not;     // "" when there are devices; else what is missing and what to do
  int driver_version = 0;  // 13000 for 13.0; 0 when there is none
  bool forked = false;     // CUDA works in the parent, and not in this process
};

// Loads libcuda.so.1 at the first call. Thread-safe; never throws.
const CudaPresence& cuda_presence() noexcept;

// What the driver tells of a device without a context on it, which would take time and half a GiB
// of its memory. Throws Error as make_cuda_device does.
DeviceInfo describe_cuda_device(int index);

// The device with the driver's index (CUDA_VISIBLE_DEVICES applies), on its primary context, so
// that memory and streams are those of the CUDA runtime, torch and CuPy in the same process.
// `sysfs` says which memory is near it.
std::shared_ptr<Device> make_cuda_device(int index, const std::filesystem::path& sysfs = "/sys");

// The device of the context that is current on this thread, or -1.
int current_cuda_device() noexcept;

// Whether this thread has a context. Without the driver in the process it has none: it is not
// loaded and started for that, which takes a tenth of a second.
bool has_cuda_context() noexcept;

// Where an address lies, by the driver's word. Device memory and managed memory count.
struct CudaPlace {
  AllocationInfo allocation;
  int device_index = -1;
};

// Nothing for addresses that are not CUDA device memory, host memory known to CUDA included.
std::optional<CudaPlace> locate_cuda_memory(DeviceAddress address) noexcept;

}  // namespace hippogriff
