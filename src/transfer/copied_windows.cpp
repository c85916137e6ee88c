// Windows are kept, and let go together.
#include "transfer/copied_windows.hpp"

#include <new>
#include <utility>

namespace hippogriff {

void CopiedWindows::add(RegisteredWindow window) noexcept {
  try {
    windows_.push_back(std::move(window));
  } catch (const std::bad_alloc&) {
    return;  // it is closed at once
  }
  if (!exit_hold_) {
    exit_hold_.emplace();
  }
}

void CopiedWindows::close() noexcept {
  windows_.clear();
  exit_hold_.reset();
}

}  // namespace hippogriff
