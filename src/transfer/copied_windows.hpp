// Windows whose copies are complete, closed when no transfer waits for it.
#pragma once

#include "transfer/registered_window.hpp"

#include <vector>

namespace hippogriff {

// Closing takes the driver some 10 ms a GB. The process's exit waits for it, 1 s at most: a driver
// that ends meanwhile would be called too late. Not thread-safe: belongs to one engine thread.
class CopiedWindows {
 public:
  CopiedWindows() = default;

  ~CopiedWindows() { close(); }

  CopiedWindows(const CopiedWindows&) = delete;
  CopiedWindows& operator=(const CopiedWindows&) = delete;

  void add(RegisteredWindow window) noexcept;
  void close() noexcept;

 private:
  std::vector<RegisteredWindow> windows_;
};

}  // namespace hippogriff
