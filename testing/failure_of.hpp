// What a call throws that must fail.
#pragma once

#include "base/error.hpp"

#include <gtest/gtest.h>

namespace hippogriff {

// The failure of a call that must fail; one that succeeds fails the test.
template <typename Call>
Failure failure_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.failure();
  }
  ADD_FAILURE() << "the call succeeded";
  return {};
}

}  // namespace hippogriff
