// What the environment says of the command that a process is part of: `hippogriff run` sets it.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace hippogriff::noded {

struct CommandVariables {
  std::string reservation;  // HIPPOGRIFF_RESERVATION: the words of whose it is; empty: none
  bool grows = false;       // HIPPOGRIFF_GROW
  // HIPPOGRIFF_WAIT_MS: how long a claim of what was left for its first use may wait. As long as it
  // takes where it says nothing.
  std::chrono::milliseconds claim_timeout{0};

  // `variable` is what one says, empty where it is not set. Throws Error(invalid_argument) with the
  // name and the value of one that means nothing.
  static CommandVariables read(const std::function<std::string(const char*)>& variable);
};

}  // namespace hippogriff::noded
