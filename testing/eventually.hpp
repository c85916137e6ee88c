// Waiting in a test for what others do.
#pragma once

#include <chrono>
#include <thread>

namespace hippogriff::testing {

// Asks for up to ten seconds.
template <typename Condition>
bool eventually(Condition condition) {
  for (int turn = 0; turn < 2000; ++turn) {
    if (condition()) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace hippogriff::testing
