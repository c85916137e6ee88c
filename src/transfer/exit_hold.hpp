// The process's exit waits for work of ours that calls a driver.
#pragma once

namespace hippogriff {

// While one lives exit() waits for it, 1 s at most: a driver that ends meanwhile would be called
// too late. Made after the driver was loaded, on any thread.
class ExitHold {
 public:
  ExitHold() noexcept;
  ~ExitHold();
  ExitHold(const ExitHold&) = delete;
  ExitHold& operator=(const ExitHold&) = delete;
};

}  // namespace hippogriff
