// Asking a stream until it has told what failed.
#include "transfer/device_wait.hpp"

namespace hippogriff {

bool drain(Stream& stream) noexcept {
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
