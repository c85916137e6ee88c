// Processes of a test that share device `host` through a node of the test's own.
#pragma once

#include "testing/node_segment.hpp"

#include <hippogriff/hippogriff.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>

namespace hippogriff::testing {

inline nlohmann::json node_status() {
  char* text = nullptr;
  EXPECT_EQ(hippogriff_node_status(&text), HIPPOGRIFF_OK);
  nlohmann::json json = nlohmann::json::parse(text == nullptr ? "{}" : text);
  hippogriff_free_string(text);
  return json;
}

// A process of its own for each test: what it says of the environment counts from its first call.
class SharedHost {
 public:
  // Runs `body` in a child with a node and 100 MiB of device `host`; it returns 0 when all is
  // right.
  template <typename Body>
  int run(Body body) const {
    return child(body).wait();
  }

  template <typename Body>
  [[nodiscard]] Child child(Body body) const {
    return Child([this, body] {
      // NOLINTBEGIN(concurrency-mt-unsafe): before any thread starts
      ::setenv("HIPPOGRIFF_NODE", place.path().c_str(), 1);
      ::setenv("HIPPOGRIFF_DEVICE", "host", 1);
      ::setenv("HIPPOGRIFF_CUDA_DRIVER", "", 1);
      ::setenv("HIPPOGRIFF_NVML", "", 1);
      ::setenv("HIPPOGRIFF_HOST_MEMORY", "100MiB", 1);
      // NOLINTEND(concurrency-mt-unsafe)
      body();
      return ::testing::Test::HasFailure() ? 1 : 0;
    });
  }

  TemporarySegment place;
};

}  // namespace hippogriff::testing
