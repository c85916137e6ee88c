// Waiting for a device that may hang.
#pragma once

#include "device/device.hpp"

#include <chrono>

namespace hippogriff {

// How long a copy may take to complete before the device counts as hung.
inline constexpr std::chrono::seconds device_timeout{60};

// A stream tells a failure once, a lost device again and again.
inline constexpr int failures_max = 3;

// After a failure: waits until nothing on the stream runs any more and forgets what failed there,
// so that its memory may be reused and the next transfer begins afresh. False when the device hangs
// (up to device_timeout) or is lost.
[[nodiscard]] bool drain(Stream& stream) noexcept;

}  // namespace hippogriff
