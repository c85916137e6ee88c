// Runs the shim's tests over the null driver with a limit: set before the shim reads its
// environment.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // NOLINTBEGIN(concurrency-mt-unsafe): the program has one thread yet
  ::setenv("HIPPOGRIFF_CUDA_DRIVER", HIPPOGRIFF_NULL_DRIVER, 1);
  ::setenv("HIPPOGRIFF_MEMORY", "64MiB", 1);
  ::setenv("HIPPOGRIFF_CONTEXT_BYTES", HIPPOGRIFF_NULL_CONTEXT_BYTES, 1);
  // NOLINTEND(concurrency-mt-unsafe)
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
