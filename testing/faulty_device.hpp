// A device that goes wrong on order: wraps any device and does what its script says.
#pragma once

#include "device/device.hpp"
#include "testing/device_faults.hpp"

#include <memory>

namespace hippogriff {

// Without faults it behaves as `inner`. Its streams and events are its own: only they work with
// each other. Thread-safe.
std::shared_ptr<Device> make_faulty_device(std::shared_ptr<Device> inner,
                                           std::shared_ptr<DeviceFaults> faults);

}  // namespace hippogriff
