// A stream tells a failure once, a lost device again and again.
#include "transfer/device_wait.hpp"

namespace hippogriff {

bool drain(Stream& stream) noexcept {
  constexpr int failures_max = 3;
  for (int failures = 0; failures < failures_max; ++failures) {
    try {
      return wait_for(stream, device_timeout);
    } catch (...) {
      continue;
    }
  }
  return false;
}

}  // namespace hippogriff
