// Windows whose copies are complete, closed when no transfer waits for it.
#pragma once

#include "transfer/exit_hold.hpp"
#include "transfer/registered_window.hpp"

#include <optional>
#include <vector>

namespace hippogriff {

// Closing takes the driver some 10 ms a GB, which the process's exit waits for. Not thread-safe:
// belongs to one engine thread.
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
  std::optional<ExitHold> exit_hold_;
};

}  // namespace hippogriff
