// One clock for all processes of a machine, whatever time namespaces they are in.
#pragma once

#include <cstdint>

namespace hippogriff::node {

// By how much the clocks of a time namespace are ahead of the machine's.
struct TimeNamespace {
  std::int64_t monotonic_ns = 0;
  std::int64_t boottime_ns = 0;
};

// The one that this process is in; where /proc does not tell it is taken for the machine's.
TimeNamespace time_namespace() noexcept;

// The machine's CLOCK_MONOTONIC: this process', less the shift of its time namespace as it was
// noted last. At first it is noted by the first call.
std::int64_t monotonic_ns() noexcept;

// For who joins a segment: after fork or setns it may be another one.
void note_time_namespace() noexcept;

}  // namespace hippogriff::node
